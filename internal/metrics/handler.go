// Package metrics is what every server reports of itself to Prometheus, whatever
// its role: its build, its members, its copy of the view, its certificate.
package metrics

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// atOnce is how many readers are served at a time; more get 503.
const atOnce = 2

// Handler serves what collectors report, and what there is of Go and the process.
// They are registered when the first reader comes: most servers that run on a
// laptop have none.
func Handler(report ...prometheus.Collector) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		return promhttp.HandlerFor(registry(report), promhttp.HandlerOpts{MaxRequestsInFlight: atOnce, ErrorHandling: promhttp.ContinueOnError})
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
