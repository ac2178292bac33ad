package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/edge"
)

// TestProxyStatus: a proxy says of each machine whether requests reach it, and why not.
func TestProxyStatus(t *testing.T) {
	t.Parallel()
	one, two := routeMachine(1, bourse.StateStarted), routeMachine(2, bourse.StateStopped)
	one.Cordoned = true
	source := &planSource{now: routable{machines: []bourse.Machine{one, two}}}
	p := &proxyServer{server: &server{log: slog.New(slog.DiscardHandler)}, balance: balanceOf{balance.New(balance.Config{Region: "gru"})}}
	p.routes = &routes{source: source, log: p.log}
	p.routes.build(t.Context())
	for path, want := range map[string][]string{
		pathProxyStatus:                  {"no it is cordoned", "start it is stopped: a request starts it"},
		pathProxyStatus + "?app=default": {"no it is cordoned", "start it is stopped: a request starts it"},
		pathProxyStatus + "?app=other":   nil,
	} {
		rec := httptest.NewRecorder()
		p.serveStatus(rec, httptest.NewRequest(http.MethodGet, path, nil))
		var got machinesapi.Proxy
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", rec.Body, err)
		}
		if got.Region != "gru" || (len(got.Routes) > 0) != (want != nil) {
			t.Errorf("%s: %s", path, rec.Body)
			continue
		}
		for i, text := range want {
			if m := got.Routes[0].Machines[i]; string(m.Use)+" "+m.Why != text {
				t.Errorf("%s: %+v, want %s", path, m, text)
			}
		}
	}
}

// addressed is a listener at an address.
type addressed struct {
	net.Listener
	at string
}

func (a addressed) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.at)) }

// TestProxyStatusURLs: the best URL comes first, and none that this proxy does not
// serve.
func TestProxyStatusURLs(t *testing.T) {
	t.Parallel()
	source := &planSource{now: routable{machines: []bourse.Machine{routeMachine(1, bourse.StateStarted)}}}
	p := &proxyServer{server: &server{log: slog.New(slog.DiscardHandler)}, balance: balanceOf{balance.New(balance.Config{})}}
	p.routes = &routes{
		source: source, log: p.log, any: map[int]int{8080: 80, 8443: 443},
		domains: []string{"localhost", "example.com"}, hosts: map[string]bourse.AppName{"shop.example.org": bourse.DefaultAppName},
	}
	p.edge.Web = append(p.edge.Web,
		edge.Web{Listener: addressed{at: "127.0.0.1:8080"}, Port: 8080},
		edge.Web{Listener: addressed{at: "[::]:443"}, Port: 8443, TLS: true},
		edge.Web{Listener: addressed{at: "192.0.2.1:8081"}, Port: 9}, // of a port that is not served
		edge.Web{Listener: addressed{at: "192.0.2.1:80"}, Port: 8080},
	)
	p.routes.build(t.Context())
	table := p.routes.current.Load()
	want := []string{
		"https://shop.example.org/", "http://shop.example.org:8080/", "http://shop.example.org/",
		"https://default.example.com/", "http://default.example.com:8080/", "http://default.example.com/",
		"http://default.localhost:8080/", "https://default.localhost/",
	}
	if diff := cmp.Diff(want, p.urlsOf(table, table.Targets()[0])); diff != "" {
		t.Errorf("URLs (-want +got):\n%s", diff)
	}
}
