package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/reach"
)

func restart(policy bourse.RestartPolicy, retries int) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Restart = &bourse.Restart{Policy: policy, MaxRetries: retries} }
}

func TestLifeOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m := h.place(run("run"))
		if m.State != bourse.StateStarted || m.Boot.PID == 0 || m.Boot.Port == 0 {
			t.Fatalf("the fill contains state %s, pid %d, port %d", m.State, m.Boot.PID, m.Boot.Port)
		}
		h.must(h.machines.Stop(ctx, m.ID, fabric.MachineAction{}))
		stopped := h.reaches(m.ID, bourse.StateStopped)
		if e := stopped.LastEvents[0].Exit; e == nil || !e.RequestedStop || e.Signal != 2 {
			t.Errorf("exit event %+v, want a requested stop by SIGINT", e)
		}
		again := h.must(h.machines.Start(ctx, m.ID, fabric.MachineAction{}))
		if again.State != bourse.StateStarted || again.Boot.Number != 2 || again.ID != m.ID || again.Instance != m.Instance {
			t.Errorf("started again as %+v", again.Boot)
		}
		restarted := h.must(h.machines.Restart(ctx, m.ID, fabric.MachineAction{}))
		if restarted.State != bourse.StateStarted || restarted.Boot.Number != 3 {
			t.Errorf("restarted: %s, boot %d", restarted.State, restarted.Boot.Number)
		}
		gone := h.must(h.machines.Destroy(ctx, m.ID, fabric.MachineAction{Force: true}))
		want := []string{
			"launch/created", "start/started",
			"stop/stopping", "exit/stopped", "start/started",
			"restart/restarting", "exit/restarting", "start/started",
			"destroy/destroying", "exit/destroying", "destroy/destroyed",
		}
		if diff := cmp.Diff(want, story(gone)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if left := h.mem.Machines(); len(left) != 0 {
			t.Errorf("the host still has %v", left)
		}
		h.verify()
	})
}

func TestRestartPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy  bourse.RestartPolicy
		retries int
		program []string
		starts  int
		end     string // the end's label in the metrics
	}{
		"no, failed":              {bourse.RestartNo, 0, []string{"exit", "1"}, 1, "failed"},
		"on-failure, well":        {bourse.RestartOnFailure, 0, []string{"exit", "0"}, 1, "ok"},
		"on-failure, failed":      {bourse.RestartOnFailure, 3, []string{"exit", "1"}, 4, "failed"},
		"on-failure, out of mem":  {bourse.RestartOnFailure, 1, []string{"oom"}, 2, "oom_killed"},
		"the default, ten times":  {"", 0, []string{"exit", "1"}, 11, "failed"},
		"always, well":            {bourse.RestartAlways, 2, []string{"exit", "0"}, 3, "ok"},
		"always, after some time": {bourse.RestartAlways, 2, []string{"sleep", "1s", "exit", "0"}, 3, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				defer h.crash()
				m := h.place(run(c.program...), restart(c.policy, c.retries))
				time.Sleep(4 * time.Minute) // virtual time, within the restart window
				m = h.get(m.ID)
				if m.State != bourse.StateStopped || h.mem.Starts() != c.starts {
					t.Errorf("%s after %d starts, want stopped after %d", m.State, h.mem.Starts(), c.starts)
				}
				if len(m.Takes) != 0 {
					t.Errorf("stopped, it takes %v", m.Takes)
				}
				if ends, restarts := h.state.Counts.Exits(); ends[c.end] != uint64(c.starts) || restarts != uint64(c.starts-1) {
					t.Errorf("exits %v and %d restarts were counted, want %d %s", ends, restarts, c.starts, c.end)
				}
				h.verify()
			})
		})
	}
}

func TestRestartsOutsideTheWindowDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("sleep", "6m", "exit", "1"), restart(bourse.RestartOnFailure, 1))
		time.Sleep(time.Hour)
		if m = h.get(m.ID); h.mem.Starts() < 9 || m.State != bourse.StateStarted {
			t.Errorf("%s after %d starts in an hour, want more restarts", m.State, h.mem.Starts())
		}
	})
}

func TestStopEndsTheWaitForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("exit", "1"), restart(bourse.RestartAlways, 20))
		time.Sleep(10 * time.Second)
		h.reaches(m.ID, bourse.StateRestarting)
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
		before := h.mem.Starts()
		time.Sleep(5 * time.Minute)
		if h.mem.Starts() != before {
			t.Error("the machine was started again after it was stopped")
		}
		h.verify()
	})
}

func TestAutoDestroy(t *testing.T) {
	auto := func(o *bourse.Order) { o.Config.AutoDestroy = true }
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		byItself := h.place(run("sleep", "1s", "exit", "7"), auto)
		onRequest := h.place(run("run"), auto)
		h.must(h.machines.Stop(t.Context(), onRequest.ID, fabric.MachineAction{}))
		time.Sleep(10 * time.Second)
		for _, id := range []bourse.MachineID{byItself.ID, onRequest.ID} {
			m := h.get(id)
			if m.State != bourse.StateDestroyed || m.Boot.Exit == nil {
				t.Errorf("machine is %s, exit %v; want a destroyed machine with its exit", m.State, m.Boot.Exit)
			}
		}
		if code := h.get(byItself.ID).Boot.Exit.Code; code != 7 {
			t.Errorf("exit code %d, want 7", code)
		}
		if len(h.mem.Machines()) != 0 {
			t.Errorf("the host still has %v", h.mem.Machines())
		}
	})
}

// Verbs that are not allowed in a machine's state fail with a code. A verb succeeds if the machine
// is already in the state that the verb requests.
func TestVerbsByState(t *testing.T) {
	act := fabric.MachineAction{}
	verbs := map[string]func(*host, bourse.MachineID) error{
		"start": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Start(h.t.Context(), id, act)
			return err
		},
		"stop": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Stop(h.t.Context(), id, act)
			return err
		},
		"restart": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Restart(h.t.Context(), id, act)
			return err
		},
		"destroy": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Destroy(h.t.Context(), id, act)
			return err
		},
		"signal": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Signal(h.t.Context(), id, fabric.MachineAction{Signal: "SIGCONT"})
			return err
		},
		"exec": func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Exec(h.t.Context(), id, &fabric.ExecRequest{Command: []string{"print", "x"}})
			return err
		},
	}
	const ok, wrong, gone = bourse.Code(""), bourse.CodeFailedPrecondition, bourse.CodeNotFound
	for state, want := range map[string]map[string]bourse.Code{
		"started":   {"start": ok, "stop": ok, "restart": ok, "destroy": wrong, "signal": ok, "exec": ok},
		"stopped":   {"start": ok, "stop": ok, "restart": ok, "destroy": ok, "signal": wrong, "exec": wrong},
		"failed":    {"start": wrong, "stop": wrong, "restart": wrong, "destroy": ok, "signal": wrong, "exec": wrong},
		"destroyed": {"start": gone, "stop": gone, "restart": gone, "destroy": gone, "signal": gone, "exec": gone},
		"unknown":   {"start": gone, "stop": gone, "restart": gone, "destroy": gone, "signal": gone, "exec": gone},
	} {
		for verb, code := range want {
			t.Run(state+"/"+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, nil)
					defer h.crash()
					if got := bourse.CodeOf(verbs[verb](h, h.inState(state))); got != code {
						t.Errorf("code %q, want %q", got, code)
					}
					h.verify()
				})
			})
		}
	}
}

// inState creates a machine and brings it into a state.
func (h *host) inState(state string) bourse.MachineID {
	h.t.Helper()
	ctx := h.t.Context()
	if state == "unknown" {
		return "00000000000000"
	}
	if state == "failed" {
		m := h.place(func(o *bourse.Order) { o.SkipLaunch = true; o.Config.Init.Exec = []string{"missing"} })
		_, err := h.machines.Start(ctx, m.ID, fabric.MachineAction{})
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			h.t.Fatalf("start of a missing program: %v", err)
		}
		return h.reaches(m.ID, bourse.StateFailed).ID
	}
	m := h.place(run("run"))
	switch state {
	case "stopped":
		h.must(h.machines.Stop(ctx, m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
	case "destroyed":
		h.must(h.machines.Destroy(ctx, m.ID, fabric.MachineAction{Force: true}))
	}
	return m.ID
}

func TestStartIsRefusedWhenTheHostIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(func(o *bourse.Order) { o.Config.Guest.MemoryMB = 3000 })
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
		h.place(func(o *bourse.Order) { o.Config.Guest.MemoryMB = 2000 })
		_, err := h.machines.Start(t.Context(), m.ID, fabric.MachineAction{})
		if bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("start on a full host: %v, want insufficient_capacity", err)
		}
		// The broker adds the prefix "aborted: could not reserve resource for machine: ".
		if got, want := bourse.MessageOf(err), "insufficient memory available to fulfill request on the current host (memory: wanted 3000 MiB, free "; !strings.HasPrefix(got, want) {
			t.Errorf("message %q, want %q…", got, want)
		}
		if h.get(m.ID).State != bourse.StateStopped {
			t.Error("the refused start changed the machine")
		}
		h.verify()
	})
}

// Of a thousand clients that request a lease at once, exactly one gets it. The nonce of
// another machine's lease does not allow its holder to act on this machine, or to
// refresh or release its lease.
func TestAThousandRequestsForOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m, other := h.place(run("run")), h.place(run("run"))
		var asking sync.WaitGroup
		var mu sync.Mutex
		var holders []bourse.Lease
		codes := map[bourse.Code]int{}
		for i := range 1000 {
			asking.Go(func() {
				lease, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: time.Hour, Owner: fmt.Sprint("client ", i)})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					holders = append(holders, lease)
					return
				}
				codes[bourse.CodeOf(err)]++
			})
		}
		asking.Wait()
		if len(holders) != 1 || codes[bourse.CodeConflict] != 999 {
			t.Fatalf("%d hold the lease, other results: %v; want one holder and 999 conflicts", len(holders), codes)
		}
		if now := h.get(m.ID); now.Lease == nil || now.Lease.Nonce != holders[0].Nonce {
			t.Errorf("the record has %+v, want the lease of %s", now.Lease, holders[0].Owner)
		}
		foreign, err := h.machines.Lease(ctx, other.ID, fabric.LeaseRequest{TTL: time.Hour, Owner: "eve"})
		if err != nil {
			t.Fatal(err)
		}
		update, _ := h.updateOf(ctx, m.ID, env("A", "1"))
		update.Nonce = foreign.Nonce
		for what, do := range map[string]func() error{
			"stop": func() error {
				_, err := h.machines.Stop(ctx, m.ID, fabric.MachineAction{Nonce: foreign.Nonce})
				return err
			},
			"update": func() error { _, err := h.machines.Update(ctx, update); return err },
			"destroy": func() error {
				_, err := h.machines.Destroy(ctx, m.ID, fabric.MachineAction{Nonce: foreign.Nonce, Force: true})
				return err
			},
			"refresh": func() error {
				_, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: time.Hour, Nonce: foreign.Nonce})
				return err
			},
			"release": func() error {
				_, err := h.machines.Release(ctx, m.ID, fabric.MachineAction{Nonce: foreign.Nonce})
				return err
			},
		} {
			if err := do(); bourse.CodeOf(err) != bourse.CodeConflict {
				t.Errorf("%s with the nonce of another machine: %v, want conflict", what, err)
			}
		}
		if now := h.get(m.ID); now.State != bourse.StateStarted || now.Instance != m.Instance || now.Lease.Nonce != holders[0].Nonce {
			t.Errorf("machine is %s, version %s, lease %+v; want it unchanged", now.State, now.Instance, now.Lease)
		}
		h.verify()
	})
}

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m := h.place(run("run"))
		lease, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: 10 * time.Second, Owner: "ana"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: time.Second}); bourse.CodeOf(err) != bourse.CodeConflict {
			t.Errorf("second lease: %v, want conflict", err)
		}
		if _, err := h.machines.Stop(ctx, m.ID, fabric.MachineAction{Nonce: "wrong"}); bourse.CodeOf(err) != bourse.CodeConflict {
			t.Errorf("stop without the nonce: %v, want conflict", err)
		}
		if longer, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: 20 * time.Second, Nonce: lease.Nonce}); err != nil || longer.Nonce != lease.Nonce {
			t.Errorf("extend: nonce %s, %v; want the same nonce", longer.Nonce, err)
		}
		h.must(h.machines.Stop(ctx, m.ID, fabric.MachineAction{Nonce: lease.Nonce}))
		time.Sleep(21 * time.Second)
		h.must(h.machines.Start(ctx, m.ID, fabric.MachineAction{})) // the lease has expired
		if _, err := h.machines.Release(ctx, m.ID, fabric.MachineAction{Nonce: lease.Nonce}); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("release of an expired lease: %v, want not_found", err)
		}
		// The former holder can refresh an expired lease. Flyctl would take another nonce to
		// mean that it has lost the lease.
		if late, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: 5 * time.Second, Nonce: lease.Nonce}); err != nil || late.Nonce != lease.Nonce || late.Owner != "ana" {
			t.Errorf("refresh just after the lease expired: %+v, %v; want the same nonce", late, err)
		}
		time.Sleep(6 * time.Second)
		other, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{TTL: time.Second, Owner: "bob"})
		if err != nil || other.Nonce == lease.Nonce {
			t.Errorf("taken by another holder: %+v, %v", other, err)
		}
		time.Sleep(2 * time.Second)
		if again, err := h.machines.Lease(ctx, m.ID, fabric.LeaseRequest{Nonce: lease.Nonce}); err != nil || again.Nonce == lease.Nonce {
			t.Errorf("refresh after another holder had the lease: %+v, %v; want a new nonce", again, err)
		}
	})
}

func TestMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"), func(o *bourse.Order) { o.Config.Metadata = map[string]string{"a": "1", "b": "2"} })
		got, err := h.machines.SetMetadata(t.Context(), m.ID, fabric.MetadataRequest{Set: map[string]*string{"a": nil, "c": new("3")}})
		if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, got.Config.Metadata); err != nil || diff != "" {
			t.Errorf("error %v; metadata (-want +got):\n%s", err, diff)
		}
		if got.Instance != m.Instance || got.State != bourse.StateStarted {
			t.Error("the metadata change created a new version or changed the machine's state")
		}
		if _, err := h.machines.SetMetadata(t.Context(), m.ID, fabric.MetadataRequest{Instance: "other"}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("stale version: %v, want failed_precondition", err)
		}
		// Many small changes cannot make a config too large.
		var last error
		for i := range 16 {
			_, last = h.machines.SetMetadata(t.Context(), m.ID, fabric.MetadataRequest{Set: map[string]*string{fmt.Sprint("k", i): new(strings.Repeat("x", 100<<10))}})
		}
		if bourse.CodeOf(last) != bourse.CodeInvalid || !strings.Contains(last.Error(), "at most") {
			t.Errorf("16 changes of 100 KiB each: %v, want invalid", last)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ctx := t.Context()
		m := h.place(run("sleep", "10s", "exit", "0"))
		begin := time.Now()
		reply, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{States: []string{"stopped", "failed"}}, time.Minute)
		if err != nil || reply.State != bourse.StateStopped || time.Since(begin) != 10*time.Second {
			t.Errorf("wait: %+v, %v after %s", reply, err, time.Since(begin))
		}
		if _, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{States: []string{"settled"}}, time.Minute); err != nil {
			t.Errorf("settled: %v", err)
		}
		if _, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{}, time.Second); bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("wait for a start that never happens: %v, want timeout", err)
		}
		if _, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{Instance: "old"}, time.Second); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("wait for another version: %v, want failed_precondition", err)
		}
		if _, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{States: []string{"sleeping"}}, time.Second); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("wait without a state: %v, want invalid", err)
		}
		if r, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{States: []string{"started"}, After: m.LastEvents[1].ID}, time.Second); err != nil || r.State != bourse.StateStarted {
			t.Errorf("wait for a state that was passed since the event: %+v, %v", r, err)
		}
		go func() {
			time.Sleep(time.Second)
			_, _ = h.machines.Destroy(context.WithoutCancel(ctx), m.ID, fabric.MachineAction{}) // the wait below checks the result
		}()
		if _, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{}, time.Minute); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("destroyed during a wait for started: %v, want not_found", err)
		}
		if r, err := reach.AwaitState(ctx, h.state, m.ID, reach.StateQuery{States: []string{"destroyed"}}, time.Minute); err != nil || r.State != bourse.StateDestroyed {
			t.Errorf("wait for destroyed: %+v, %v", r, err)
		}
	})
}
