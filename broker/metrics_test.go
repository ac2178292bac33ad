package broker_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	servermetrics "github.com/bourse-dev/bourse/internal/metrics"
)

func withScraper(c *broker.Config) {
	c.Counts = endpoint.NewCounts()
	c.Metrics = servermetrics.Handler(c.Counts)
	c.Tokens = tokenMap{"root": {Name: "root"}, "acme": {Name: "ann@acme", Org: "acme"}, "prom": {Name: "scraper", Scraper: true}}
}

func TestMetricsOfABroker(t *testing.T) {
	s := start(t, withScraper)
	for token, want := range map[string]int{"": 401, "wrong": 401, "acme": 403, "root": 200, "prom": 200} {
		for _, path := range []string{"/metrics", "/v1/metrics/targets"} {
			if rec := s.call(t, "GET", path, "", "Authorization", "Bearer "+token); rec.Code != want {
				t.Errorf("%s with token %q: status %d, want %d: %s", path, token, rec.Code, want, rec.Body)
			}
		}
	}
	text := s.call(t, "GET", "/metrics", "", "Authorization", "Bearer prom").Body.String()
	for _, line := range []string{
		`bourse_requests_total{route="GET /metrics",status="403"} 1`, `bourse_requests_total{route="GET /v1/metrics/targets",status="401"} 2`,
		`bourse_requests_in_progress{route="GET /metrics"} 1`, "bourse_orders_in_progress 0", "go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("metrics lack %s:\n%s", line, text)
		}
	}
}

// TestMetricsTargets checks that Prometheus discovers every worker as a target behind this broker.
// Absent workers are included, so that Prometheus reports them as down.
func TestMetricsTargets(t *testing.T) {
	s := start(t, withScraper, func(c *broker.Config) {
		c.Members = func() []bourse.Member {
			return []bourse.Member{{ID: "p1", Role: bourse.RoleProxy, Region: "gru"}, {ID: "p2", Role: bourse.RoleProxy, Region: "gru"}}
		}
		c.Workers = measured{c.Workers}
	})
	s.absent = []bourse.Absence{{Member: s.members[2], Since: time.Now()}}
	s.members = s.members[:2]
	rec := s.call(t, "GET", "http://api.example.com:4280/v1/metrics/targets", "", "Authorization", "Bearer prom")
	want := `[{"targets":["api.example.com:4280"],"labels":{"__metrics_path__":"/v1/proxies/p1/metrics","instance":"p1","region":"gru"}},` +
		`{"targets":["api.example.com:4280"],"labels":{"__metrics_path__":"/v1/proxies/p2/metrics","instance":"p2","region":"gru"}},` +
		`{"targets":["api.example.com:4280"],"labels":{"__metrics_path__":"/v1/workers/w1/metrics","instance":"w1","region":"gru"}},` +
		`{"targets":["api.example.com:4280"],"labels":{"__metrics_path__":"/v1/workers/w2/metrics","instance":"w2","region":"gru"}},` +
		`{"targets":["api.example.com:4280"],"labels":{"__metrics_path__":"/v1/workers/w3/metrics","instance":"w3","region":"mad"}}]`
	if got := strings.TrimSpace(rec.Body.String()); got != want || !strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") {
		t.Errorf("got %s\n%s\nwant %s", rec.Header().Get("Content-Type"), got, want)
	}
	for path, want := range map[string]int{"/v1/workers/w3/metrics": 503, "/v1/workers/w9/metrics": 404, "/v1/proxies/p1/metrics": 200, "/v1/proxies/p2/metrics": 503, "/v1/proxies/p9/metrics": 404} {
		if rec := s.call(t, "GET", path, "", "Authorization", "Bearer prom"); rec.Code != want {
			t.Errorf("%s: status %d, want %d: %s", path, rec.Code, want, rec.Body)
		}
	}
}

// measured is a fabric with two proxies: p1 replies with metrics, and p2 does not respond.
type measured struct{ fabric.Fabric }

func (m measured) Call(ctx context.Context, to bourse.Member, r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Path != endpoint.ProxyMetricsPath:
		return m.Fabric.Call(ctx, to, r)
	case to.ID == "p1":
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("bourse_proxy_requests_total 1\n"))}, nil
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "%s does not respond", to.ID)
}

// TestWorkerMetricsAreRelayedAsText checks that a worker's metrics are relayed as plain text, and
// only up to a maximum size.
func TestWorkerMetricsAreRelayedAsText(t *testing.T) {
	s := start(t, withScraper)
	const page = "<script>alert(1)</script>"
	s.workers["w1"].mux.HandleFunc(fabric.WorkerMetrics.Path(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, page)
	})
	rec := s.call(t, "GET", "/v1/workers/w1/metrics", "", "Authorization", "Bearer prom")
	h := rec.Header()
	if rec.Code != 200 || rec.Body.String() != page || h.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" ||
		h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Set-Cookie") != "" {
		t.Errorf("%d %v %s", rec.Code, h, rec.Body)
	}

	var sent int64
	s.workers["w2"].mux.HandleFunc(fabric.WorkerMetrics.Path(), func(w http.ResponseWriter, _ *http.Request) {
		sent, _ = io.Copy(w, io.LimitReader(endless{}, 64<<20))
	})
	client := s.client(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, client.BaseURL+"/v1/workers/w2/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer prom")
	resp, err := client.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil || n > 33<<20 {
		t.Errorf("%d bytes of endless metrics arrived (%v), want an aborted reply; %d were sent", n, err, sent)
	}
}

// endless is a body of metrics that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}
