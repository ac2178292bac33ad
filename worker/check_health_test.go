package worker

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/workload"
)

// checkedServer simulates a machine's program that serves at its $PORT.
type checkedServer struct {
	ill   atomic.Bool
	asked atomic.Int64

	mu sync.Mutex
	ln net.Listener // guarded by mu
}

// serve listens at the machine's port.
func (s *checkedServer) serve(t *testing.T, port int) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.ln = ln
	s.mu.Unlock()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		if s.ill.Load() {
			http.Error(w, "ill", http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
}

// checked gives an order's machine a service with an HTTP check and a TCP check. The
// machine's $PORT is the service's port.
func checked(port int) func(*bourse.Order) {
	return func(o *bourse.Order) {
		o.Config.Env = map[string]string{"PORT": strconv.Itoa(port)}
		o.Config.Services = json.RawMessage(`[{"internal_port":` + strconv.Itoa(port) + `,"protocol":"tcp","checks":[
			{"type":"http","path":"/up","interval":"1s","grace_period":"1ms"},{"type":"tcp","interval":"1s","grace_period":"1h"}]}]`)
	}
}

// becomes waits until a machine's checks have these statuses.
func (h *host) becomes(id bourse.MachineID, want ...bourse.CheckState) []bourse.CheckStatus {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	var got []bourse.CheckStatus
	_, err := h.state.AwaitMachine(ctx, id, func(m *bourse.Machine) bool {
		got = workload.CheckStatuses(m)
		for i := range want {
			if len(got) != len(want) || got[i].Status != want[i] || got[i].UpdatedAt.IsZero() {
				return false
			}
		}
		return true
	})
	if err != nil {
		h.t.Fatalf("the checks of machine %s are %+v and never became %v: %v", id, got, want, err)
	}
	return got
}

// TestChecks follows a machine's checks through its life: not ready, ready, unhealthy,
// healthy again, after the daemon's death, and after a restart.
func TestChecks(t *testing.T) {
	h := newHost(t, nil)
	port := freePorts(t, 1).First
	m := h.place(checked(port))
	const w, p, c = bourse.CheckWarning, bourse.CheckPassing, bourse.CheckCritical
	// Nothing listens yet. The first check has no grace period; the second one does.
	if got := h.becomes(m.ID, c, w); got[0].Output != "port "+strconv.Itoa(port)+": dial: connect: connection refused" || got[1].Output != "waiting for the first result" {
		t.Errorf("%+v", got)
	}
	var s checkedServer
	s.serve(t, port)
	got := h.becomes(m.ID, p, p)
	if got[0].Output != "GET /up: 200 OK" || got[1].Output != "connected to port "+strconv.Itoa(port) {
		t.Errorf("%+v", got)
	}
	before := h.get(m.ID).UpdatedAt
	h.awaitProbes(&s, 2)
	if now := h.get(m.ID).UpdatedAt; !now.Equal(before) {
		t.Errorf("probes with unchanged results have changed the record: %s, then %s", before, now)
	}

	h.crash()
	h.start(nil)
	if now := workload.CheckStatuses(new(h.get(m.ID))); now[0] != got[0] || now[1] != got[1] {
		t.Errorf("checks after the daemon restarted: %+v, before: %+v", now, got)
	}
	s.ill.Store(true)
	if got := h.becomes(m.ID, c, p); got[0].Output != "GET /up: 503 Service Unavailable: ill" {
		t.Errorf("%+v", got)
	}
	s.ill.Store(false)
	h.becomes(m.ID, p, p)

	h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
	h.reaches(m.ID, bourse.StateStopped)
	if got := h.becomes(m.ID, w, w); got[0].Output != "the machine is stopped" {
		t.Errorf("%+v", got)
	}
	s.ill.Store(true)
	h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
	h.becomes(m.ID, c, p) // a check that passed before the stop must not count
	h.verify()
}

// awaitProbes waits until the server has received n more requests.
func (h *host) awaitProbes(s *checkedServer, n int64) {
	h.t.Helper()
	for until := s.asked.Load() + n; s.asked.Load() < until; {
		if h.t.Context().Err() != nil {
			h.t.Fatal("no probes")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestChecksAtPort checks that a service's checks probe the port to which its requests go. On the host's network, that
// is the machine's $PORT, even if another program uses the service's port.
func TestChecksAtPort(t *testing.T) {
	h := newHost(t, nil)
	port, other := freePorts(t, 1).First, new(checkedServer)
	other.ill.Store(true)
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	named := foreign.Addr().(*net.TCPAddr).Port
	_ = foreign.Close()
	other.serve(t, named)
	m := h.place(func(o *bourse.Order) {
		checked(named)(o)
		o.Config.Env = map[string]string{"PORT": strconv.Itoa(port)}
		o.Config.Checks = json.RawMessage(`{"up":{"type":"http","port":` + strconv.Itoa(named) + `,"path":"/up","interval":"1s","grace_period":"1h"}}`)
	})
	var s checkedServer
	s.serve(t, port)
	h.becomes(m.ID, bourse.CheckPassing, bourse.CheckPassing, bourse.CheckPassing)
	if n := other.asked.Load(); n != 0 {
		t.Errorf("another program's port was probed %d times", n)
	}
}

// TestChecksEnd checks that a destroyed machine is no longer probed.
func TestChecksEnd(t *testing.T) {
	h := newHost(t, nil)
	port := freePorts(t, 1).First
	var s checkedServer
	s.serve(t, port)
	m := h.place(checked(port))
	h.becomes(m.ID, bourse.CheckPassing, bourse.CheckPassing)
	h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
	other := h.place()
	for h.checks.Running() > 0 && t.Context().Err() == nil { // only go test's timeout limits this loop
		<-time.After(time.Millisecond)
	}
	if got := workload.CheckStatuses(new(h.get(other.ID))); got != nil {
		t.Errorf("a machine without checks has check results: %+v", got)
	}
}
