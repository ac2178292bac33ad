package broker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/lookup"
)

const webService = `[{"internal_port":8080,"autostart":true,"ports":[{"port":80,"handlers":["http"]}]}]`

// serving creates a stopped machine on worker w1 that is started by requests.
func (s *setup) serving(t *testing.T, change func(*bourse.Machine)) bourse.MachineID {
	t.Helper()
	const w = "w1"
	m := s.machine(t, w, "", bourse.StateStopped)
	s.workers[w].mu.Lock()
	defer s.workers[w].mu.Unlock()
	its := s.workers[w].machines[m.ID]
	its.Config.Services = json.RawMessage(webService)
	its.Config.Guest = &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}
	its.Config.Env = map[string]string{"KEY": "value"}
	if change != nil {
		change(its)
	}
	return m.ID
}

// TestOrderFailover checks that a proxy gets a copy of a machine on another worker in the region if the machine's host
// is full, and that the copy is destroyed when it stops. Other proxies that request a copy at the same time get the
// same one.
func TestOrderFailover(t *testing.T) {
	s := start(t)
	like := s.serving(t, nil)
	s.workers["w1"].full, s.workers["w2"].full = true, true
	// If no other worker has capacity, the order's ID is returned with the refusal.
	if got, err := s.broker.OrderFailover(t.Context(), like); bourse.CodeOf(err) != bourse.CodeInsufficient || got.Order != s.lastOrder(t).ID || got.Machine != "" {
		t.Errorf("%+v, %v", got, err)
	}
	s.workers["w2"].full = false
	got, err := s.broker.OrderFailover(t.Context(), like)
	if err != nil {
		t.Fatal(err)
	}
	order := s.lastOrder(t)
	if got.Order != order.ID || got.Worker != "w2" || got.Region != "gru" || got.Machine.Tag() != 0xbbbbbb || got.Instance == "" {
		t.Errorf("got %+v of order %s", got, order.ID)
	}
	if diff := cmp.Diff([]bourse.Choice{{"gru"}}, order.Regions); diff != "" {
		t.Error(diff)
	}
	if c := order.Config; !c.AutoDestroy || c.Env["KEY"] != "value" || string(c.Services) != webService || order.Name != "" {
		t.Errorf("config %+v", c)
	}
	placed := len(s.orders)
	for _, id := range []bourse.MachineID{like, s.serving(t, nil)} { // another machine of the app has the same config
		if again, err := s.broker.OrderFailover(t.Context(), id); err != nil || again != got || len(s.orders) != placed {
			t.Errorf("another proxy got %+v after %d orders, %v; want %+v", again, len(s.orders), err, got)
		}
	}
	differs := s.serving(t, func(m *bourse.Machine) { m.Config.Env = map[string]string{"KEY": "other"} })
	if other, err := s.broker.OrderFailover(t.Context(), differs); err != nil || other.Machine == got.Machine {
		t.Errorf("a machine that differs: %+v, %v", other, err)
	}
}

// TestOrderFailoverRefused checks that a machine cannot be copied for a proxy if requests do not
// start it or if it is tied to its host.
func TestOrderFailoverRefused(t *testing.T) {
	for name, change := range map[string]func(*bourse.Machine){
		"started":  func(m *bourse.Machine) { m.State = bourse.StateStarted },
		"cordoned": func(m *bourse.Machine) { m.Cordoned = true },
		"leased":   func(m *bourse.Machine) { m.Lease = &bourse.Lease{ExpiresAt: time.Now().Add(time.Hour)} },
		"volume":   func(m *bourse.Machine) { m.Config.Mounts = []bourse.Mount{{Volume: "vol_1", Path: "/data"}} },
		"spare":    func(m *bourse.Machine) { m.Config.Standbys = []bourse.MachineID{"00000a00000001"} },
		"services": func(m *bourse.Machine) { m.Config.Services = nil },
		"autostart": func(m *bourse.Machine) {
			m.Config.Services = json.RawMessage(`[{"internal_port":8080,"autostart":false}]`)
		},
		"broken": func(m *bourse.Machine) { m.Config.Services = json.RawMessage(`[{"internal_port":"x"}]`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			like := s.serving(t, change)
			if _, err := s.broker.OrderFailover(t.Context(), like); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || len(s.orders) != 0 {
				t.Errorf("%v, orders %v", err, s.orders)
			}
		})
	}
	s := start(t, func(c *broker.Config) {
		quotas, err := lookup.Read([]byte(`{"app": {"machines": 1}}`))
		if err != nil {
			t.Fatal(err)
		}
		c.Quotas = quotas
	})
	like := s.serving(t, nil)
	if got, err := s.broker.OrderFailover(t.Context(), like); bourse.CodeOf(err) != bourse.CodeForbidden || got.Order == "" || len(s.orders) != 0 {
		t.Errorf("beyond the quota: %v, orders %v", err, s.orders)
	}
	for _, id := range []bourse.MachineID{"aaaaaa00000000", "dddddd00000000", "x"} {
		if _, err := s.broker.OrderFailover(t.Context(), id); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("machine %s: %v", id, err)
		}
	}
}
