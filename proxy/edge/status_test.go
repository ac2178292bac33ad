package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/route"
)

// routeMachine returns machine n of the default app, in the given state.
func routeMachine(n int, state bourse.State) bourse.Machine {
	m := bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("000001%08x", n)), App: bourse.DefaultAppName, Worker: "w1", Region: "gru", State: state,
		Instance: "v1", CreatedAt: time.Now(), Config: bourse.Config{Image: "host"},
	}
	m.Config.Services = json.RawMessage(`[{"autostart":true,"ports":[{"port":80,"handlers":["http"]}]}]`)
	return m
}

// following returns a Follower of a cluster with the given machines.
func following(t *testing.T, c route.FollowerConfig, machines ...bourse.Machine) *route.Follower {
	built := make(chan struct{}, 1)
	c.Read = func(context.Context) (route.Snapshot, error) { return route.Snapshot{Machines: machines}, nil }
	c.Complete = func() bool { return true }
	c.ReachableWorker = func(bourse.WorkerTag) (bourse.WorkerID, bool) { return "w1", true }
	c.Members = func() <-chan struct{} { return nil }
	c.Changed = func(*route.Table) { built <- struct{}{} }
	c.Log = slog.New(slog.DiscardHandler)
	f := route.NewFollower(c)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_ = f.Run(ctx, nil)
		close(ended)
	}()
	<-built
	stop()
	<-ended
	return f
}

// TestProxyStatus checks that the status contains, for each machine, whether requests can reach it and, if not, why.
func TestProxyStatus(t *testing.T) {
	t.Parallel()
	one, two := routeMachine(1, bourse.StateStarted), routeMachine(2, bourse.StateStopped)
	one.Cordoned = true
	h := new(Config).StatusHandler(balance.New(balance.Config{Region: "gru"}), following(t, route.FollowerConfig{}, one, two))
	for path, want := range map[string][]string{
		"/":             {"no it is cordoned", "start it is stopped: a request starts it"},
		"/?app=default": {"no it is cordoned", "start it is stopped: a request starts it"},
		"/?app=other":   nil,
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
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

// addressed is a listener that claims to have the address at.
type addressed struct {
	net.Listener
	at string
}

func (a addressed) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.at)) }

// TestProxyStatusURLs checks that the best URL comes first, and that the proxy serves all listed URLs.
func TestProxyStatusURLs(t *testing.T) {
	t.Parallel()
	routes := following(t, route.FollowerConfig{
		Domains: []string{"localhost", "example.com"}, Hosts: map[string]bourse.AppName{"shop.example.org": bourse.DefaultAppName},
	}, routeMachine(1, bourse.StateStarted))
	routes.ListenAny(8080, 80)
	routes.ListenAny(8443, 443)
	c := &Config{Web: []Web{
		{Listener: addressed{at: "127.0.0.1:8080"}, Port: 8080},
		{Listener: addressed{at: "[::]:443"}, Port: 8443, TLS: true},
		{Listener: addressed{at: "192.0.2.1:8081"}, Port: 9}, // the app does not serve this port
		{Listener: addressed{at: "192.0.2.1:80"}, Port: 8080},
	}}
	table := routes.Table()
	want := []string{
		"https://shop.example.org/", "http://shop.example.org:8080/", "http://shop.example.org/",
		"https://default.example.com/", "http://default.example.com:8080/", "http://default.example.com/",
		"http://default.localhost:8080/", "https://default.localhost/",
	}
	if diff := cmp.Diff(want, c.urlsOf(routes, table, table.Targets()[0])); diff != "" {
		t.Errorf("URLs (-want +got):\n%s", diff)
	}
}
