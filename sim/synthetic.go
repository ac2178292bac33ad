package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/bourse-dev/bourse"
)

// Small returns three random hosts, and 500 random orders that slightly exceed their capacity.
func Small(seed int64) (*Trace, []Arrival) {
	rng := rand.New(rand.NewPCG(uint64(seed), 4))
	t := &Trace{}
	for range 3 {
		t.Hosts = append(t.Hosts, Host{CPU: bourse.MilliCPU(1000 * (200 + rng.IntN(200))), Memory: bourse.MiB(300_000 + rng.IntN(300_000))})
	}
	for range 10 {
		t.Shapes = append(t.Shapes, Shape{CPU: bourse.MilliCPU(1000 * (1 + rng.IntN(4))), Memory: bourse.MiB(512 * (1 + rng.IntN(8)))})
	}
	var arrivals []Arrival
	for i := range 500 {
		arrivals = append(arrivals, Arrival{At: time.Duration(i) * time.Second, Shape: rng.IntN(len(t.Shapes))})
	}
	return t, arrivals
}

// synthetic generates a synthetic workload on hosts with 32 cores and 128 GiB.
type synthetic struct {
	regions  int
	shapes   []Shape
	weights  []float64 // relative frequencies of the shapes
	life     time.Duration
	load     float64 // mean share of all CPUs that the workload demands
	wave     float64 // amplitude of a region's daily wave, relative to the region's mean rate
	day      time.Duration
	perBurst float64 // mean number of orders that arrive at the same time
}

// Sandboxes returns a workload of sandboxes for AI agents. Small machines arrive in bursts, and live
// for a minute on average. One machine in a hundred is large.
func Sandboxes(hosts, orders int, seed int64) (*Trace, []Arrival) {
	return synthetic{
		regions: 1, life: time.Minute, load: 0.85, day: time.Hour, perBurst: 20,
		shapes:  []Shape{{CPU: 1000, Memory: 2048}, {CPU: 2000, Memory: 4096}, {CPU: 16000, Memory: 65536}},
		weights: []float64{0.69, 0.30, 0.01},
	}.generate("sandboxes", hosts, orders, seed)
}

// Waves returns a workload of services in four regions, whose demand rises and falls with the time of day. A day lasts
// only 30 minutes, so that an experiment contains several days.
func Waves(hosts, orders int, seed int64) (*Trace, []Arrival) {
	return synthetic{
		regions: 4, life: 5 * time.Minute, load: 0.6, wave: 0.5, day: 30 * time.Minute, perBurst: 1,
		shapes:  []Shape{{CPU: 1000, Memory: 4096}, {CPU: 2000, Memory: 4096}, {CPU: 4000, Memory: 16384}, {CPU: 8000, Memory: 65536}},
		weights: []float64{0.4, 0.3, 0.2, 0.1},
	}.generate("waves", hosts, orders, seed)
}

func (s synthetic) generate(name string, hosts, orders int, seed int64) (*Trace, []Arrival) {
	t := &Trace{Name: name, Shapes: s.shapes}
	for i := range hosts {
		t.Hosts = append(t.Hosts, Host{CPU: 32000, Memory: 131072, Region: i % s.regions})
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	mean := 0.0
	for i, w := range s.weights {
		mean += w * float64(s.shapes[i].CPU)
	}
	rate := s.load * 32000 * float64(hosts) / (mean * s.life.Seconds()) // orders per second
	out := make([]Arrival, 0, orders)
	at := time.Duration(0)
	for len(out) < orders {
		at += time.Duration(rng.ExpFloat64() * s.perBurst / rate * float64(time.Second))
		region := s.region(at, rng)
		for burst := 1 + int(rng.ExpFloat64()*(s.perBurst-1)); burst > 0 && len(out) < orders; burst-- {
			life := time.Duration(rng.ExpFloat64() * float64(s.life))
			shape := s.shape(rng)
			out = append(out, Arrival{At: at, Life: max(1, life), Shape: shape, Region: region})
			t.Orders = append(t.Orders, shape)
		}
	}
	return t, out
}

// region returns a random region, weighted by the regions' demand at the given time.
func (s *synthetic) region(at time.Duration, rng *rand.Rand) int {
	for {
		r := rng.IntN(s.regions)
		phase := 2 * math.Pi * (at.Seconds()/s.day.Seconds() + float64(r)/float64(s.regions))
		if rng.Float64()*(1+s.wave) < 1+s.wave*math.Sin(phase) {
			return r
		}
	}
}

func (s *synthetic) shape(rng *rand.Rand) int {
	x := rng.Float64()
	for i, w := range s.weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(s.weights) - 1
}
