// Package metrics implements the Prometheus metrics that servers of all roles report. They describe
// the server's build, its certificate, its copy of the view, and the cluster's members.
package metrics

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// concurrency is the maximum number of concurrent scrapes. Further scrapes get status 503.
const concurrency = 2

// Handler serves the metrics of the given collectors, the Go runtime and the process. It registers
// the collectors at the first scrape, because most servers on a laptop are never scraped.
func Handler(report ...prometheus.Collector) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		return promhttp.HandlerFor(registry(report), promhttp.HandlerOpts{MaxRequestsInFlight: concurrency, ErrorHandling: promhttp.ContinueOnError})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		handler().ServeHTTP(w, r)
	})
}

func registry(report []prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(report...)
	return r
}
