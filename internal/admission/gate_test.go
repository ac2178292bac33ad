package admission_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestGate checks that requests that a web page can send are refused, and that requests of
// clients and servers are admitted.
func TestGate(t *testing.T) {
	const reached = http.StatusTeapot
	type header map[string]string
	server := header{"Bourse-Server": "c1"}
	for _, tt := range []struct {
		name, method, host, path string
		header                   header
		want                     int
	}{
		{"a client by address", "POST", "127.0.0.1:4280", "/v1/apps", nil, reached},
		{"a client by IPv6 address", "POST", "[::1]:4280", "/v1/apps", nil, reached},
		{"a client by IPv6 address without a port", "POST", "[::1]", "/v1/apps", nil, reached},
		{"a client by localhost", "POST", "localhost:4280", "/v1/apps", nil, reached},
		{"a client by a subdomain of localhost", "POST", "a.LocalHost.", "/v1/apps", nil, reached},
		{"a client by one of the server's names", "POST", "API.example.com.:443", "/v1/apps", nil, reached},
		{"an HTTP/1.0 health check", "GET", "", "/v1/health", nil, reached},
		{"a page of this server", "POST", "api.example.com", "/v1/apps", header{"Origin": "https://api.example.com"}, reached},
		{"a name that resolves to this server", "GET", "evil.example:4280", "/v1/workers", nil, http.StatusMisdirectedRequest},
		{"a rebound page, same origin", "POST", "evil.example:4280", "/v1/apps", header{"Origin": "http://evil.example:4280", "Sec-Fetch-Site": "same-origin"}, http.StatusMisdirectedRequest},
		{"a rebound page on a path for servers", "POST", "evil.example:4280", "/worker/order/claim", server, http.StatusMisdirectedRequest},
		{"a name that ends like an address", "GET", "127.0.0.1.evil.example", "/v1/workers", nil, http.StatusMisdirectedRequest},
		{"a name that ends like localhost", "GET", "notlocalhost", "/v1/workers", nil, http.StatusMisdirectedRequest},
		{"a subdomain of one of the server's names", "GET", "x.api.example.com", "/v1/workers", nil, http.StatusMisdirectedRequest},
		{"another site's form", "POST", "127.0.0.1:4280", "/v1/apps", header{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"another site's form, old browser", "POST", "127.0.0.1:4280", "/sched/submit", header{"Origin": "http://evil.example"}, http.StatusForbidden},
		{"a page of another port", "POST", "localhost:4280", "/sched/submit", header{"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"a server", "POST", "10.0.0.1:4281", "/worker/order/claim", server, reached},
		{"a server's replicator", "POST", "10.0.0.1:4281", "/view/push", server, reached},
		{"a server of another cluster", "POST", "10.0.0.1:4281", "/view/push", header{"Bourse-Server": "c2"}, http.StatusForbidden},
		{"a form to a worker, without browser headers", "POST", "10.0.0.1:4281", "/worker/order/claim", header{"Content-Type": "text/plain"}, http.StatusForbidden},
		{"a page to a worker", "POST", "10.0.0.1:4281", "/worker/order/claim", header{"Bourse-Server": "c1", "Origin": "http://10.0.0.1:4281"}, http.StatusForbidden},
		{"a page that reads from a worker", "GET", "10.0.0.1:4281", "/worker/machine/list", header{"Bourse-Server": "c1", "Sec-Fetch-Site": "none"}, http.StatusForbidden},
		{"a server on loopback without the secret", "POST", "127.0.0.1:1", "/worker/order/claim", header{"Bourse-Server": "c1", "Case": "secret"}, http.StatusUnauthorized},
		{"a server on loopback with another secret", "POST", "127.0.0.1:1", "/worker/order/claim", header{"Bourse-Server": "c1", "Authorization": "Bearer t", "Case": "secret"}, http.StatusUnauthorized},
		{"a server on loopback", "POST", "127.0.0.1:1", "/worker/order/claim", header{"Bourse-Server": "c1", "Authorization": "Bearer s", "Case": "secret"}, reached},
		{"metrics on loopback without the secret", "GET", "127.0.0.1:1", "/worker/metrics", header{"Case": "secret"}, http.StatusUnauthorized},
		{"figures on loopback", "GET", "127.0.0.1:1", "/worker/metrics", header{"Authorization": "Bearer s", "Case": "secret"}, reached},
		{"a client on loopback, whose token is checked by another handler", "GET", "127.0.0.1:1", "/v1/apps", header{"Case": "secret"}, reached},
		{"figures", "GET", "10.0.0.1:4281", "/worker/metrics", nil, reached},
		{"metrics requested by a page", "GET", "10.0.0.1:4281", "/worker/metrics", header{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gate := admission.Gate{Names: func() []string { return []string{"Api.example.com"} }, Proof: admission.Proof{Cluster: "c1"}}
			if tt.header["Case"] == "secret" {
				gate.Proof.Bearer = "s"
			}
			h := gate.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(reached) }))
			r := httptest.NewRequestWithContext(t.Context(), tt.method, "http://host"+tt.path, nil)
			r.Host = tt.host
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d: %s", w.Code, tt.want, w.Body)
			}
		})
	}
}

// The secret for loopback must not be sent to other hosts.
func TestSecretIsNotSentToOtherHosts(t *testing.T) {
	proof := admission.Proof{Cluster: "c1", Bearer: "s"}
	for address, want := range map[string]string{
		"127.0.0.1:80": "Bearer s", "[::1]:80": "Bearer s", "10.0.0.1:80": "", "[fd00::1]:80": "", "localhost:80": "", "127.0.0.1.evil.example:80": "", "": "",
	} {
		h := http.Header{}
		if proof.ShowTo(h, address); h.Get("Authorization") != want || h.Get("Bourse-Server") != "c1" {
			t.Errorf("to %q: %v, want %q", address, h, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"api.example.com": true, "Api": true, "": false, "https://api.example.com": false, "api:443": false, "a b": false,
		"*.example.com": false, "api.example.com.": false, "[::1]": false,
	} {
		if err := admission.CheckName(name); (err == nil) != good || err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func FuzzGateHost(f *testing.F) {
	f.Add("127.0.0.1:1")
	f.Add("[::1%25lo]:1")
	f.Add("evil.example")
	f.Add("fe80::1%")
	gate := admission.Gate{Names: func() []string { return []string{"Api.example.com"} }}
	h := gate.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://host/v1/health", nil)
		r.Host = host + ".evil.example"
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code == http.StatusOK {
			t.Errorf("host %q is allowed", r.Host)
		}
	})
}
