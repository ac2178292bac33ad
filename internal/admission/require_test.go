package admission_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestRequire checks that a public server serves all callers, and on some paths only servers with
// the right role.
func TestRequire(t *testing.T) {
	now := time.Now()
	ca, other := newCA(t, now), newCA(t, now)
	credentials := func(ca, of *admission.CA, who admission.Identity) *admission.Credentials {
		c, err := admission.NewCredentials(ca.Pair().Cert, issue(t, of, who, now))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	broker1 := admission.Identity{ID: "broker-1", Role: bourse.RoleBroker}
	served := credentials(ca, ca, broker1)
	mux := http.NewServeMux()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/public", ok)
	mux.Handle("/workers", admission.Require(ok, bourse.RoleWorker))
	server := httptest.NewUnstartedServer(mux)
	server.TLS = served.Public()
	server.StartTLS()
	t.Cleanup(server.Close)

	nobody := credentials(ca, ca, worker1).Client()
	nobody.Certificates = nil
	stranger := credentials(other, other, worker1).Client()
	stranger.RootCAs = nobody.RootCAs
	for name, tt := range map[string]struct {
		config          *tls.Config
		public, workers int // expected statuses; 0: no connection
	}{
		"a worker":                    {credentials(ca, ca, worker1).Client(), 204, 204},
		"a broker":                    {served.Client(), 204, 403},
		"a person":                    {nobody, 204, 403},
		"a worker of another cluster": {stranger, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tt.config.ServerName = broker1.ServerName()
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: tt.config}}
			t.Cleanup(client.CloseIdleConnections)
			for path, want := range map[string]int{"/public": tt.public, "/workers": tt.workers} {
				if got := status(t, client, server.URL+path); got != want {
					t.Errorf("%s: status %d, want %d", path, got, want)
				}
			}
		})
	}
	t.Run("in the clear", func(t *testing.T) {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/workers", http.NoBody))
		if rec.Code != http.StatusNoContent {
			t.Errorf("status %d, want requests without TLS to be served", rec.Code)
		}
	})
}

// status returns the status of a reply, or 0 if the server closes the connection.
func status(t *testing.T, client *http.Client, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
