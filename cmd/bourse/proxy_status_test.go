package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/balance"
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
		var got balance.Status
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
