package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestNewBrokerAnswersOnlyUnavailable checks that a broker that does not know its cluster yet responds to every request
// with "try again", and that no request has an effect.
func TestNewBrokerAnswersOnlyUnavailable(t *testing.T) {
	s := start(t)
	s.new = true
	const config = `{"region":"gru","config":{"image":"host","init":{"exec":["x"]}}}`
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/health", ""},
		{"GET", "/v1/apps", ""},
		{"POST", "/v1/apps", `{"app_name":"web","org_slug":"personal"}`},
		{"GET", "/v1/apps/nosuch", ""},
		{"DELETE", "/v1/apps/nosuch", ""},
		{"GET", "/v1/apps/default/machines", ""},
		{"POST", "/v1/apps/default/machines", config},
		{"POST", "/v1/apps/default/machines", `{"region":"nowhere","config":{"image":"host","init":{"exec":["x"]}}}`},
		{"POST", "/v1/apps/default/quotes", config},
		{"GET", "/v1/apps/default/machines/dddddd00000001", ""},
		{"DELETE", "/v1/apps/default/machines/dddddd00000001?force=true", ""},
		{"POST", "/v1/apps/default/machines/dddddd00000001/start", ""},
		{"GET", "/v1/apps/default/machines/dddddd00000001/wait", ""},
		{"POST", "/v1/apps/default/tasks", `{"task":"x"}`},
		{"GET", "/v1/apps/default/volumes", ""},
		{"GET", "/v1/apps/default/volumes/" + string(bourse.NewVolumeID(0xdddddd)), ""},
		{"GET", "/v1/orders/" + string(bourse.NewOrderID()), ""},
		{"GET", "/v1/workers", ""},
		{"GET", "/v1/workers/w9", ""},
		{"GET", "/v1/platform/regions", ""},
	} {
		rec := s.call(t, c.method, c.path, c.body)
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: %d, Retry-After %q, want 503 with one: %s", c.method, c.path, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
		}
	}
	if n := len(s.orders); n != 0 {
		t.Errorf("%d orders were placed", n)
	}
	if rec := s.call(t, "GET", "/v1/nosuch", ""); rec.Code != http.StatusNotFound {
		t.Errorf("a nonexistent endpoint: %d, want 404", rec.Code)
	}
	s.new = false
	if rec := s.call(t, "GET", "/v1/health", ""); rec.Code != http.StatusOK {
		t.Errorf("health once the cluster is known: %d: %s", rec.Code, rec.Body)
	}
}

// TestObjectsOfAbsentWorkersAreUnavailable checks that an object of an absent worker is never
// reported as not found, because only that worker knows its objects.
func TestObjectsOfAbsentWorkersAreUnavailable(t *testing.T) {
	s := start(t)
	s.absent = []bourse.Absence{{
		Member: bourse.Member{ID: "w9", Role: bourse.RoleWorker, Region: "gru", Tag: 0xdddddd}, Since: time.Now(),
	}}
	order := string(bourse.NewOrderID())
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v1/apps/default/machines/dddddd00000001", http.StatusServiceUnavailable},
		{"DELETE", "/v1/apps/default/machines/dddddd00000001", http.StatusServiceUnavailable},
		{"GET", "/v1/apps/default/machines/dddddd00000001/events", http.StatusServiceUnavailable},
		{"GET", "/v1/apps/default/volumes/" + string(bourse.NewVolumeID(0xdddddd)), http.StatusServiceUnavailable},
		{"GET", "/v1/orders/" + order, http.StatusServiceUnavailable},
		{"GET", "/v1/workers/w9/runs", http.StatusServiceUnavailable},
		// The worker of each of these objects is a member or is known not to exist.
		{"GET", "/v1/apps/default/machines/eeeeee00000001", http.StatusNotFound},
		{"GET", "/v1/apps/default/machines/aaaaaa00000001", http.StatusNotFound},
		{"GET", "/v1/apps/default/volumes/" + string(bourse.NewVolumeID(0xeeeeee)), http.StatusNotFound},
		{"GET", "/v1/workers/w8", http.StatusNotFound},
	} {
		rec := s.call(t, c.method, c.path, "")
		if rec.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, rec.Code, c.want, rec.Body)
		}
		if named := strings.Contains(rec.Body.String(), "w9") || strings.Contains(c.path, "orders"); c.want == http.StatusServiceUnavailable && !named {
			t.Errorf("the error for %s %s does not mention the worker: %s", c.method, c.path, rec.Body)
		}
	}
	s.absent[0].Since = time.Now().Add(-time.Minute) // the worker was already absent when the order was placed
	if rec := s.call(t, "GET", "/v1/orders/"+order, ""); rec.Code != http.StatusNotFound {
		t.Errorf("an order placed during the absence: %d, want 404: %s", rec.Code, rec.Body)
	}
}
