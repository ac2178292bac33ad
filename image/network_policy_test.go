package image

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestPublicAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "169.254.169.254": false, "fe80::1": false,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false, "100.64.0.1": false, "fd00::1": false, "0.0.0.0": false, "::": false, "224.0.0.1": false,
		"255.255.255.255": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public %t, want %t", text, got, want)
		}
	}
}

// TestRegistriesDoNotLeadIntoTheWorkersNetwork checks that no connection is made to an address in the worker's own
// network, whether a registry's name resolves to it or a registry redirects to it. Connections are made if private
// addresses are allowed or the operator has configured the registry.
func TestRegistriesDoNotLeadIntoTheWorkersNetwork(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { asked++ }))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	named := "localhost" + host[strings.LastIndexByte(host, ':'):] // checked after name resolution
	for name, c := range map[string]struct {
		registries *registries
		want       bool
	}{
		"as it is":             {&registries{stall: time.Second}, false},
		"private":              {&registries{stall: time.Second, reach: networkPolicy{private: true}}, true},
		"described":            {&registries{stall: time.Second, config: map[string]Registry{host: {PlainHTTP: true}, named: {PlainHTTP: true}}}, true},
		"only another":         {&registries{stall: time.Second, reach: networkPolicy{private: true, registries: []string{"registry.example.com"}}}, false},
		"only another, public": {&registries{stall: time.Second, reach: networkPolicy{registries: []string{"registry.example.com"}}}, false},
	} {
		for _, registry := range []string{host, named} {
			before := asked
			h, err := c.registries.host("", registry)
			if err == nil {
				var req *http.Request
				if req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+registry+"/v2/", nil); err != nil {
					t.Fatal(err)
				}
				var resp *http.Response
				if resp, err = h.Client.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			if (err == nil) != c.want || (asked > before) != c.want {
				t.Errorf("%s, %s: %v, asked %t; want %t", name, registry, err, asked > before, c.want)
			}
			if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%s, %s: code %s of %v", name, registry, bourse.CodeOf(err), err)
			}
		}
		c.registries.close()
	}
}
