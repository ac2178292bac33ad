package broker

import (
	"math"
	"net/http"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
)

// platformHandler serves information about the whole cluster.
type platformHandler struct{ *Config }

func (h *platformHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/health", endpoint.Anyone, h.health).Writes(machinesapi.Health{}),
		endpoint.On("GET /v1/platform/regions", endpoint.Anyone, h.regions).Writes(machinesapi.RegionList{}),
	}
}

// health reports whether the broker is ready, without calling other servers. A broker is not ready if it does not know
// its cluster yet, or if none of the cluster's workers can be reached. Clients should then use another broker.
func (h *platformHandler) health(w http.ResponseWriter, _ *endpoint.Request) error {
	if err := ready(h.Directory); err != nil {
		return err
	}
	here, absent := h.Directory.All()
	away := 0
	for i := range absent {
		if !absent[i].Removed {
			away++
		}
	}
	if len(here) == 0 && away > 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "this broker cannot reach any worker: all %d workers of the cluster are down or stopped", away)
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.Health{Status: "ok", Version: h.Version, Workers: len(here)})
}

// regions lists the regions of the exchange.
func (h *platformHandler) regions(w http.ResponseWriter, _ *endpoint.Request) error {
	counts := map[bourse.Region]int{}
	for _, m := range h.Directory.Workers() {
		counts[m.Region]++
	}
	list := machinesapi.RegionList{Regions: []machinesapi.Region{}}
	here, located := machinesapi.GeographyOf(h.Region)
	nearest := math.Inf(1)
	for _, code := range h.Directory.Regions() {
		region := machinesapi.Region{Code: code, Name: string(code), Workers: counts[code]}
		there, known := machinesapi.GeographyOf(code)
		if known {
			region.Name, region.GeoRegion, region.Latitude, region.Longitude = there.City, there.Continent, there.Latitude, there.Longitude
		}
		switch {
		case code == h.Region:
			list.Nearest, nearest = code, -1
		case located && known && here.Kilometers(there) < nearest:
			list.Nearest, nearest = code, here.Kilometers(there)
		}
		list.Regions = append(list.Regions, region)
	}
	return endpoint.WriteJSON(w, http.StatusOK, list)
}
