package proxy_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bourse-dev/bourse/proxy"
)

var _ proxy.Metrics = (*proxy.Counts)(nil)

// TestCounts checks the per-app metrics.
func TestCounts(t *testing.T) {
	c := proxy.NewCounts("gru")
	for _, status := range []int{200, 204, 404, 503, 499, 9999} {
		c.RequestStarted("web")
		c.RequestEnded("web", status, time.Second)
	}
	c.RequestStarted("web")
	c.Repeated("web", "lost")
	c.Repeated("web", "order")
	c.Repeated("web", "whatever")
	c.MachineWoken("web", true, time.Second)
	c.MachineWoken("web", false, time.Second)
	text := scrape(t, c)
	for _, want := range []string{
		`requests_in_progress{app="web",region="gru"} 1`,
		`requests_total{app="web",region="gru",status="2xx"} 2`,
		`requests_total{app="web",region="gru",status="4xx"} 1`,
		`requests_total{app="web",region="gru",status="499"} 1`,
		`requests_total{app="web",region="gru",status="503"} 1`,
		`requests_total{app="web",region="gru",status="other"} 1`,
		`request_seconds_count{app="web",region="gru"} 6`,
		`retries_total{app="web",reason="lost",region="gru"} 1`,
		`retries_total{app="web",reason="order",region="gru"} 1`,
		`retries_total{app="web",reason="other",region="gru"} 1`,
		`wakes_total{app="web",outcome="failed",region="gru"} 1`,
		`wakes_total{app="web",outcome="started",region="gru"} 1`,
		`wake_seconds_count{region="gru"} 1`,
	} {
		if !strings.Contains(text, "\nbourse_proxy_"+want+"\n") {
			t.Errorf("without %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// scrape returns the metrics in Prometheus' text format.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

// TestBounded checks that the number of series is bounded, regardless of the number of apps.
func TestBounded(t *testing.T) {
	c := proxy.NewCounts("gru")
	for i := range 5000 {
		c.RequestStarted(fmt.Sprint("app", i))
		c.RequestEnded(fmt.Sprint("app", i), 200, 0)
	}
	if n := strings.Count(scrape(t, c), "\nbourse_proxy_requests_in_progress{"); n != 1001 {
		t.Errorf("%d series", n)
	}
}
