package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
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

// TestProxiesAreNotChecked connects to a proxy at a private address. Another name for the same address, such as that of
// a registry for which the proxy is not used, must be refused.
func TestProxiesAreNotChecked(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	proxy, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	policy := networkPolicy{proxies: proxyAddresses(func(*http.Request) (*url.URL, error) { return proxy, nil })}
	dial := policy.dial(false, time.Second)
	c, err := dial(t.Context(), "tcp", proxy.Host)
	if err != nil {
		t.Fatalf("connect to the proxy: %v", err)
	}
	_ = c.Close()
	if _, err := dial(t.Context(), "tcp", "localhost:"+proxy.Port()); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("connect to another registry at the proxy's port: %v, want invalid", err)
	}
}

// TestProxyAddresses compares the addresses of proxies with those that http.Transport passes to its dialer.
func TestProxyAddresses(t *testing.T) {
	for _, text := range []string{"http://proxy.test:3128", "http://proxy.test", "https://proxy.test", "socks5://proxy.test", "http://[fd00::1]:80", "http://user:secret@10.0.0.1"} {
		proxy, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		dialed := ""
		transport := &http.Transport{Proxy: http.ProxyURL(proxy), DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			dialed = address
			return nil, errors.New("not connected")
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
		if got := proxyAddresses(transport.Proxy); len(got) == 0 || got[0] != dialed {
			t.Errorf("%s: addresses %q, want %s", text, got, dialed)
		}
	}
}
