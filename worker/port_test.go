package worker

import (
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// freePorts gives n ports in a row that nobody listens on now.
func freePorts(t *testing.T, n int) PortRange {
	t.Helper()
	for first, have := 40000, 0; first+have < 60000; {
		if !bindable(first + have) {
			first, have = first+have+1, 0
		} else if have++; have == n {
			return PortRange{First: first, Last: first + n - 1}
		}
	}
	t.Fatal("the host has no ports in a row")
	return PortRange{}
}

// Machines that do not listen have their ports all the same: as many as there
// are ports have one each, also when they are started again, and the next one
// is refused.
func TestEachMachineHasAPort(t *testing.T) {
	const ports = 8
	h := newHost(t, func(c *Config) { c.Ports = freePorts(t, ports) })
	var all []bourse.MachineID
	for range ports - 1 {
		all = append(all, h.place().ID)
	}
	last := &bourse.Claim{Order: *newOrder(t)}
	for i := range 3 { // a claim that comes again has its machine, though there is no port left
		fill, refusal, err := h.claim(t.Context(), last)
		if err != nil || refusal != nil || fill.Again != (i > 0) {
			t.Fatalf("claim %d: %+v, refusal %+v, %v", i, fill, refusal, err)
		}
		if i == 0 {
			all = append(all, fill.Machine.ID)
		} else if fill.Machine.ID != all[ports-1] {
			t.Errorf("claim %d gives machine %s, want %s", i, fill.Machine.ID, all[ports-1])
		}
	}
	distinct := func(when string) {
		t.Helper()
		used := map[int]bourse.MachineID{}
		for _, id := range all {
			port := h.get(id).Boot.Port
			if used[port] != "" || port < h.cfg.Ports.First || port > h.cfg.Ports.Last {
				t.Errorf("%s: machine %s has port %d, which is %q's, of %+v", when, id, port, used[port], h.cfg.Ports)
			}
			used[port] = id
		}
	}
	distinct("placed")
	none := func(how string, r *bourse.Refusal, err error) {
		t.Helper()
		if err != nil || r == nil || r.Reason != bourse.RefusedResource || r.Resource != resourcePorts || r.Wanted != 1 || r.Free != 0 {
			t.Errorf("one more than there are ports is %s: %+v, %v", how, r, err)
		}
	}
	q, err := h.quote(t.Context(), newOrder(t))
	none("quoted", q.Refusal, err)
	_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
	none("claimed", refusal, err)
	own := newOrder(t)
	own.Config.Env = map[string]string{envPort: "80"}
	if q, err := h.quote(t.Context(), own); err != nil || q.Refusal != nil {
		t.Errorf("one that names its port: %+v, %v", q.Refusal, err)
	}
	for range 5 {
		var again sync.WaitGroup
		for i, id := range all {
			again.Go(func() {
				act := h.restart
				if i%2 == 0 {
					if _, err := h.Worker.stop(t.Context(), id, fabric.Act{}); err != nil {
						t.Error(err)
					}
					h.reaches(id, bourse.StateStopped)
					act = h.Worker.start
				}
				if _, err := act(t.Context(), id, fabric.Act{}); err != nil {
					t.Error(err)
				}
			})
		}
		again.Wait()
		distinct("started again")
	}
	h.must(h.destroy(t.Context(), all[0], fabric.Act{Force: true}))
	all[0] = h.place().ID
	distinct("after another has gone")
	h.verify()
}
