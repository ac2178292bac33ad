package worker

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/worker/admit"
)

// freePorts returns n consecutive ports that nothing else on this host uses during the
// test.
func freePorts(t *testing.T, n int) admit.PortRange {
	t.Helper()
	first, last := servertest.Ports(t)
	if last-first+1 < n {
		t.Fatalf("ports %d-%d are fewer than %d", first, last, n)
	}
	return admit.PortRange{First: first, Last: first + n - 1}
}

// Each machine keeps its port for life, even if it does not listen or is stopped. Once
// all ports are taken, the next machine is refused.
func TestEachMachineHasAPort(t *testing.T) {
	const ports = 8
	free := freePorts(t, ports) // chosen once, because newHost calls the function for each daemon
	h := newHost(t, func(c *Config) { c.Ports = free })
	var all []bourse.MachineID
	for range ports - 1 {
		all = append(all, h.place().ID)
	}
	last := &bourse.Claim{Order: *newOrder(t)}
	for i := range 3 { // repeating the claim returns the same machine, although no port is left
		fill, refusal, err := h.claim(t.Context(), last)
		if err != nil || refusal != nil || fill.Repeated != (i > 0) {
			t.Fatalf("claim %d: %+v, refusal %+v, %v", i, fill, refusal, err)
		}
		if i == 0 {
			all = append(all, fill.Machine.ID)
		} else if fill.Machine.ID != all[ports-1] {
			t.Errorf("claim %d returns machine %s, want %s", i, fill.Machine.ID, all[ports-1])
		}
	}
	had := map[bourse.MachineID]int{}
	distinct := func(when string) {
		t.Helper()
		used := map[int]bourse.MachineID{}
		for _, id := range all {
			port := h.get(id).Boot.Port
			if had[id] != 0 && had[id] != port {
				t.Errorf("%s: machine %s has port %d, previously %d", when, id, port, had[id])
			}
			had[id] = port
			if used[port] != "" || port < h.cfg.Ports.First || port > h.cfg.Ports.Last {
				t.Errorf("%s: machine %s has port %d, which belongs to %q, ports %+v", when, id, port, used[port], h.cfg.Ports)
			}
			used[port] = id
		}
	}
	distinct("placed")
	none := func(how string, r *bourse.Refusal, err error) {
		t.Helper()
		if err != nil || r == nil || r.Reason != bourse.RefusedResource || r.Resource != admit.ResourcePorts || r.Wanted != 1 || r.Free != 0 {
			t.Errorf("with all ports taken, another machine is %s: refusal %+v, error %v; want a refusal", how, r, err)
		}
	}
	q, err := h.quote(t.Context(), newOrder(t))
	none("quoted", q.Refusal, err)
	_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
	none("claimed", refusal, err)
	own := newOrder(t)
	own.Config.Env = map[string]string{admit.EnvPort: "80"}
	if q, err := h.quote(t.Context(), own); err != nil || q.Refusal != nil {
		t.Errorf("a machine with a declared port: %+v, %v", q.Refusal, err)
	}
	for range 5 {
		var again sync.WaitGroup
		for i, id := range all {
			again.Go(func() {
				act := h.machines.Restart
				if i%2 == 0 {
					if _, err := h.machines.Stop(t.Context(), id, fabric.MachineAction{}); err != nil {
						t.Error(err)
					}
					h.reaches(id, bourse.StateStopped)
					act = h.machines.Start
				}
				if _, err := act(t.Context(), id, fabric.MachineAction{}); err != nil {
					t.Error(err)
				}
			})
		}
		again.Wait()
		distinct("started again")
	}
	h.must(h.machines.Stop(t.Context(), all[1], fabric.MachineAction{}))
	h.reaches(all[1], bourse.StateStopped)
	distinct("one is stopped")
	_, refusal, err = h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
	none("claimed while another machine is stopped", refusal, err)
	h.crash()
	h.start(nil)
	distinct("after the daemon's restart")
	h.must(h.machines.Start(t.Context(), all[1], fabric.MachineAction{}))
	distinct("started after it")
	h.must(h.machines.Destroy(t.Context(), all[0], fabric.MachineAction{Force: true}))
	delete(had, all[0])
	all[0] = h.place().ID
	distinct("after another machine was destroyed")
	h.verify()
}

// If another program listens on a stopped machine's port, starting the machine fails
// and the error says so. Once the port is free again, the machine starts with it.
func TestAPortTakenByAnotherProgram(t *testing.T) {
	free := freePorts(t, 1)
	h := newHost(t, func(c *Config) { c.Ports = free })
	m := h.place()
	h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
	h.reaches(m.ID, bourse.StateStopped)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", m.Boot.Port))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.machines.Start(t.Context(), m.ID, fabric.MachineAction{})
	want := fmt.Sprintf("machine %s cannot start: another program on its host listens on port %d, its $PORT", m.ID, m.Boot.Port)
	if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || bourse.MessageOf(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if now := h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{})); now.Boot.Port != m.Boot.Port {
		t.Errorf("port %d, previously %d", now.Boot.Port, m.Boot.Port)
	}
}

// A machine gets the port that its service names if that is in the worker's range and
// free. Otherwise it gets another one: the port may belong to another program or to a
// stopped machine, and ports outside the range may belong to another worker.
func TestADeclaredPort(t *testing.T) {
	free := freePorts(t, 12)
	h := newHost(t, func(c *Config) { c.Ports = free })
	declared, busy, outside := free.Last, free.Last-1, free.Last+1
	names := func(port int) func(*bourse.Order) {
		return func(o *bourse.Order) {
			o.Config.Services = fmt.Appendf(nil, `[{"protocol":"tcp","internal_port":%d}]`, port)
		}
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", busy))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first := h.place(names(declared))
	if first.Boot.Port != declared {
		t.Errorf("the first machine has port %d, its service names %d", first.Boot.Port, declared)
	}
	h.must(h.machines.Stop(t.Context(), first.ID, fabric.MachineAction{}))
	h.reaches(first.ID, bourse.StateStopped)
	given := func(port int) bool { return port >= h.cfg.Ports.First && port <= h.cfg.Ports.Last }
	second := h.place(names(declared))
	for _, port := range []int{second.Boot.Port, h.place(names(busy)).Boot.Port, h.place(names(80)).Boot.Port, h.place(names(outside)).Boot.Port} {
		if !given(port) || port == declared || port == busy {
			t.Errorf("a machine has port %d, which is outside the worker's range or taken by another program", port)
		}
	}
	if moved, err := admit.PortOf(&second, declared); err != nil || moved != second.Boot.Port {
		t.Errorf("requests for the second machine go to port %d, %v; its $PORT is %d", moved, err, second.Boot.Port)
	}
	// A start chooses the port again, but the machine keeps its port.
	if now := h.must(h.machines.Start(t.Context(), first.ID, fabric.MachineAction{})); now.Boot.Port != declared {
		t.Errorf("the first machine has port %d after its second start", now.Boot.Port)
	}
	h.must(h.machines.Destroy(t.Context(), first.ID, fabric.MachineAction{Force: true}))
	h.must(h.machines.Stop(t.Context(), second.ID, fabric.MachineAction{}))
	h.reaches(second.ID, bourse.StateStopped)
	if now := h.must(h.machines.Start(t.Context(), second.ID, fabric.MachineAction{})); now.Boot.Port != declared {
		t.Errorf("the second machine has port %d, although %d is free", now.Boot.Port, declared)
	}
	h.verify()
}

// A machine that is ordered without being launched already has a port.
func TestAMachineHasItsPortBeforeItStarts(t *testing.T) {
	h := newHost(t, nil)
	m := h.place(func(o *bourse.Order) { o.SkipLaunch = true })
	now := h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
	if m.Boot.Port == 0 || now.Boot.Port != m.Boot.Port {
		t.Errorf("port %d, then %d", m.Boot.Port, now.Boot.Port)
	}
}
