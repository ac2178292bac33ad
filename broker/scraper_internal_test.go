package broker

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
)

type aScraper struct{}

func (aScraper) Identify(context.Context, string) (endpoint.Identity, error) {
	return endpoint.Identity{Name: "scraper", Scraper: true}, nil
}

// TestScraperReadsOnlyMetrics checks that a scraper can read metrics with its token or certificate,
// but cannot use any other endpoint that requires credentials.
func TestScraperReadsOnlyMetrics(t *testing.T) {
	s, routes, _ := compose(&Config{Tokens: aScraper{}, Certified: func(*tls.ConnectionState) (endpoint.Identity, bool) {
		return endpoint.Identity{Name: "prometheus", Scraper: true}, true
	}})
	metrics := map[string]bool{"GET /metrics": true, "GET /v1/metrics/targets": true, "GET /v1/workers/{worker}/metrics": true, "GET /v1/proxies/{proxy}/metrics": true}
	public := map[string]bool{"GET /v1/health": true, "GET /v1/platform/regions": true, "GET /openapi.json": true}
	for _, rt := range routes {
		if public[rt.Pattern] {
			continue
		}
		for _, by := range []string{"token", "certificate"} {
			r := &endpoint.Request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)}
			r.SetPathValue("app", "web")
			r.TLS = &tls.ConnectionState{}
			if by == "token" {
				r.Header.Set("Authorization", "Bearer x")
			}
			err := s.Gate.Authorize(&rt, r)
			if want := map[bool]bourse.Code{false: bourse.CodeForbidden}[metrics[rt.Pattern]]; bourse.CodeOf(err) != want {
				t.Errorf("%s by %s: %v, want %q", rt.Pattern, by, err, want)
			}
		}
	}
	for _, app := range []bourse.App{{}, {Name: "web"}, {Name: "web", Org: "acme"}} {
		if who := (endpoint.Identity{Scraper: true}); who.May(app) || who.Cluster() {
			t.Errorf("a scraper may use app %+v", app)
		}
	}
}
