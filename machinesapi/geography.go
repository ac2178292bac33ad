package machinesapi

import (
	"math"

	"github.com/bourse-dev/bourse"
)

// Geography is the location of a region. Operators choose region names. If a name is an airport code, as on other
// platforms, the region's location is that of the airport.
type Geography struct {
	City      string
	Continent string // a name from the Machines API, such as europe or north_america
	Latitude  float64
	Longitude float64
}

// GeographyOf returns the location of a region. It returns false if the region's name is not a
// known airport code.
func GeographyOf(code bourse.Region) (Geography, bool) {
	g, ok := airports[code]
	return g, ok
}

// Kilometers returns the distance between two locations.
func (g Geography) Kilometers(to Geography) float64 {
	const earth, degree = 6371, math.Pi / 180
	a, b, l := g.Latitude*degree, to.Latitude*degree, (g.Longitude-to.Longitude)*degree
	return earth * math.Acos(min(1, math.Sin(a)*math.Sin(b)+math.Cos(a)*math.Cos(b)*math.Cos(l)))
}

const (
	africa       = "africa"
	asiaPacific  = "asia_pacific"
	europe       = "europe"
	northAmerica = "north_america"
	southAmerica = "south_america"
)

var airports = map[bourse.Region]Geography{
	"ams": {"Amsterdam, Netherlands", europe, 52.3, 4.8},
	"arn": {"Stockholm, Sweden", europe, 59.7, 17.9},
	"atl": {"Atlanta, Georgia (US)", northAmerica, 33.6, -84.4},
	"bog": {"Bogotá, Colombia", southAmerica, 4.7, -74.1},
	"bom": {"Mumbai, India", asiaPacific, 19.1, 72.9},
	"bos": {"Boston, Massachusetts (US)", northAmerica, 42.4, -71.0},
	"cdg": {"Paris, France", europe, 49.0, 2.5},
	"den": {"Denver, Colorado (US)", northAmerica, 39.9, -104.7},
	"dfw": {"Dallas, Texas (US)", northAmerica, 32.9, -97.0},
	"ewr": {"Secaucus, New Jersey (US)", northAmerica, 40.7, -74.2},
	"eze": {"Ezeiza, Argentina", southAmerica, -34.8, -58.5},
	"fra": {"Frankfurt, Germany", europe, 50.0, 8.6},
	"gdl": {"Guadalajara, Mexico", northAmerica, 20.5, -103.3},
	"gig": {"Rio de Janeiro, Brazil", southAmerica, -22.8, -43.2},
	"gru": {"São Paulo, Brazil", southAmerica, -23.4, -46.5},
	"hkg": {"Hong Kong", asiaPacific, 22.3, 113.9},
	"iad": {"Ashburn, Virginia (US)", northAmerica, 38.9, -77.5},
	"jnb": {"Johannesburg, South Africa", africa, -26.1, 28.2},
	"lax": {"Los Angeles, California (US)", northAmerica, 33.9, -118.4},
	"lhr": {"London, United Kingdom", europe, 51.5, -0.5},
	"mad": {"Madrid, Spain", europe, 40.5, -3.6},
	"mia": {"Miami, Florida (US)", northAmerica, 25.8, -80.3},
	"nrt": {"Tokyo, Japan", asiaPacific, 35.8, 140.4},
	"ord": {"Chicago, Illinois (US)", northAmerica, 42.0, -87.9},
	"otp": {"Bucharest, Romania", europe, 44.6, 26.1},
	"phx": {"Phoenix, Arizona (US)", northAmerica, 33.4, -112.0},
	"qro": {"Querétaro, Mexico", northAmerica, 20.6, -100.2},
	"scl": {"Santiago, Chile", southAmerica, -33.4, -70.8},
	"sea": {"Seattle, Washington (US)", northAmerica, 47.4, -122.3},
	"sin": {"Singapore", asiaPacific, 1.4, 104.0},
	"sjc": {"San Jose, California (US)", northAmerica, 37.4, -121.9},
	"syd": {"Sydney, Australia", asiaPacific, -33.9, 151.2},
	"waw": {"Warsaw, Poland", europe, 52.2, 21.0},
	"yul": {"Montreal, Canada", northAmerica, 45.5, -73.7},
	"yyz": {"Toronto, Canada", northAmerica, 43.7, -79.6},
}
