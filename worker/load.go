package worker

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// loadGauge reads the host's load, at most once a second.
type loadGauge struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu
	load float64   // guarded by mu
}

const loadMaxAge = time.Second

// read returns the runnable tasks per core, averaged over a minute; 0 where the
// host does not report it.
func (g *loadGauge) read() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.at) > loadMaxAge {
		g.at, g.load = now, hostLoad()
	}
	return g.load
}

func hostLoad() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load / float64(runtime.NumCPU())
}
