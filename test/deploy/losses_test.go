package deploy

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestDeployDuringServerLosses kills servers during a deploy. If they are restarted, the deploy must continue. If a
// server is not restarted, all changes that can be undone must be undone, and the result must name the others.
func TestDeployDuringServerLosses(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, s := range append(slices.Clone(h.workers), h.broker) {
		s.Settle()
	}
	t.Run("worker", func(t *testing.T) { h.in(t).loses("worker") })
	t.Run("broker", func(t *testing.T) { h.in(t).loses("broker", h.broker) })
	t.Run("permanently lost worker", func(t *testing.T) { h.in(t).losesForGood("away", h.workers[1]) })
}

// loses kills a server during a rolling update and restarts it. If no server is given, it kills the worker of the
// machine that is updated last.
func (h *house) loses(app bourse.AppName, servers ...*servertest.Server) {
	h.app(app, 4)
	h.spread(app)
	plan := h.plan(wanted(h, app, "v2", deploy.Rolling, 4), h.release(app))
	if last := plan.Steps[len(plan.Steps)-1].Machine; len(servers) == 0 {
		m, err := h.api.Machine(h.Context(), app, last)
		if err != nil {
			h.Fatal(err)
		}
		servers = slices.DeleteFunc(slices.Clone(h.workers), func(s *servertest.Server) bool { return m.Worker != bourse.WorkerID(s.Name) })
	}
	s := servers[0]
	before := h.shape(app)
	l := h.load(app)
	var once sync.Once
	waited := false
	result, err := h.run(plan, run.Options{Events: func(e run.Event) {
		waited = waited || e.State == run.Waiting
		if e.State == run.Done && e.Step == 1 {
			once.Do(func() {
				if err := s.Kill(); err != nil {
					h.Error(err)
				}
				l.done.Go(func() { // restart the server while the run waits for it
					if err := s.Start(); err != nil {
						h.Error(err)
					}
				})
			})
		}
	}})
	if err != nil {
		h.Errorf("Run: %v, %+v; want success in spite of the killed server", err, result)
	}
	l.end(h.T)
	h.eventually("all machines have the new version", func() error {
		if got, want := h.shape(app), strings.ReplaceAll(before, "v1", "v2"); got != want {
			return bourse.Errorf(bourse.CodeInternal, "the app is %s, want %s", got, want)
		}
		return nil
	})
	h.Logf("wait for the server during the run: %v", waited)
}

// losesForGood kills a worker while all machines are updated simultaneously, and does not restart it before the run has
// ended.
func (h *house) losesForGood(app bourse.AppName, s *servertest.Server) {
	if _, err := h.api.CreateApp(h.Context(), machinesapi.CreateApp{Name: app}); err != nil {
		h.Fatal(err)
	}
	for i := range 4 {
		c := config(h, "v1")
		c.Requirements = bourse.Requirements{"host": {Label: h.workers[i%2].Name}}
		if _, err := h.api.Create(h.Context(), app, machinesapi.CreateMachine{Region: "gru", Config: c}, ""); err != nil {
			h.Fatal(err)
		}
	}
	lost := bourse.WorkerID(s.Name)
	plan, steps := h.perWorker(app, "v2")
	var once sync.Once
	began := time.Now()
	result, err := h.run(plan, run.Options{RetryFor: 2 * time.Second, LeaseTTL: 2 * time.Second, Events: func(e run.Event) {
		if e.State == run.Done && slices.Contains(steps[lost], e.Step) {
			once.Do(func() {
				if err := s.Kill(); err != nil {
					h.Error(err)
				}
			})
		}
	}})
	h.Logf("the run ended after %s: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil || result.Status != release.Interrupted || len(result.Left) == 0 {
		h.Fatalf("Run: %v, %+v; want an error, an interrupted release, and leftover machines", err, result)
	}
	for _, left := range result.Left {
		if id := left.Machine; result.Steps[left.Step].Machine != id || left.Next == "" || !strings.Contains(left.Next, "bourse rollback") {
			h.Errorf("leftover machine: %+v, want machine %s with a hint to run bourse rollback", left, result.Steps[left.Step].Machine)
		}
	}
	if err := s.Start(); err != nil {
		h.Fatal(err)
	}
	left := map[bourse.MachineID]bool{}
	for _, l := range result.Left {
		left[l.Machine] = true
	}
	h.eventually("all machines that the result does not name have their former version", func() error {
		for _, m := range h.machines(app) {
			if m.Config == nil {
				return bourse.Errorf(bourse.CodeUnavailable, "worker %s is down", m.Worker)
			}
			if v := m.Config.Env[machineVariable]; v != "v1" && !left[m.ID] || left[m.ID] && m.Worker != lost {
				return bourse.Errorf(bourse.CodeInternal, "machine %s of %s has version %s, but the result names only %v", m.ID, m.Worker, v, left)
			}
		}
		return nil
	})
}
