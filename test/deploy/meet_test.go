package deploy

import (
	"bufio"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestTwoDeploys has two clients deploy the same app.
func TestTwoDeploys(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	t.Run("apps", func(t *testing.T) {
		t.Run("at the same time", func(t *testing.T) { t.Parallel(); h.in(t).atTheSameTime("both") })
		t.Run("rolling is suspended", func(t *testing.T) { t.Parallel(); h.in(t).suspended("slept", deploy.Rolling, deploy.AwaitReady{}) })
		t.Run("bluegreen is suspended", func(t *testing.T) {
			t.Parallel()
			h.in(t).suspended("dreamt", deploy.BlueGreen, deploy.CordonMachine{})
		})
	})
}

// atTheSameTime checks that one of two concurrent deploys succeeds. The error of the other
// one must describe who is deploying, since when, until when its lease lasts, and what to
// do.
func (h *house) atTheSameTime(app bourse.AppName) {
	h.app(app, 2)
	first := h.plan(wanted(h, app, "v2", deploy.Rolling, 2), h.release(app))
	second := h.plan(wanted(h, app, "v3", deploy.Rolling, 2), h.release(app))
	reached, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := run.Run(h.Context(), run.NewAPI(h.api, app), first, run.Options{Owner: owner + ", since 12:00:00 UTC", LeaseTTL: leaseTTL, Wait: waitTimeout, Events: func(e run.Event) {
			if e.Step == 1 && e.State == run.Done {
				close(reached)
				<-goOn // the first client extends its leases in the meantime
			}
		}})
		ended <- err
	}()
	<-reached
	var waited []string
	result, err := h.run(second, run.Options{LeaseWait: 2 * leaseTTL, Release: second.Release, Events: func(e run.Event) {
		if e.State == run.Waiting {
			waited = append(waited, e.Text)
		}
	}})
	if !errors.Is(err, run.ErrLeased) || bourse.CodeOf(err) != bourse.CodeConflict || result.Status != release.Failed || len(result.Left) > 0 {
		h.Errorf("the second deploy: %v, %+v; want a conflict because of leases, and a failed release", err, result)
	}
	h.Logf("the second deploy: %v", err)
	for _, want := range []string{"(" + owner + ", since 12:00:00 UTC), until ", " UTC unless it is extended", ": wait until the lease ends"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			h.Errorf("error of the second deploy: %v, want %q in it", err, want)
		}
	}
	if !slices.ContainsFunc(waited, func(text string) bool { return strings.Contains(text, owner) }) {
		h.Errorf("the second deploy waits with the messages %q, want one that contains %q", waited, owner)
	}
	close(goOn)
	if err := <-ended; err != nil {
		h.Errorf("the first deploy: %v, want success", err)
	}
	h.is(app, 2, "v2")
}

// is checks that all machines serve and have the given version.
func (h *house) is(app bourse.AppName, machines int, version string) {
	h.Helper()
	list := h.machines(app)
	if len(list) != machines {
		h.Errorf("the app has %d machines, want %d", len(list), machines)
	}
	for _, m := range list {
		if v := m.Config.Env[machineVariable]; v != version || m.State != bourse.StateStarted || m.Cordoned {
			h.Errorf("machine %s is %s, version %s, cordoned: %v; want %s", m.ID, m.State, v, m.Cordoned, version)
		}
	}
}

// suspended suspends a client after a step with the given action, until its leases have
// expired and another client has deployed. When the first client continues, it must not
// change what the other client has deployed.
func (h *house) suspended(app bourse.AppName, strategy deploy.Strategy, after deploy.Action) {
	h.app(app, 2)
	p := h.plan(wanted(h, app, "v2", strategy, 2), h.release(app))
	step := slices.IndexFunc(p.Steps, func(s deploy.Step) bool { return s.Do.String() == after.String() })
	first := h.sent(errand{Plan: plan{p}, Step: step, State: run.Done, Stops: true})
	pipe, err := first.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	if err := first.Start(); err != nil {
		h.Fatal(err)
	}
	var once sync.Once
	wake := func() { once.Do(func() { _ = first.Process.Signal(syscall.SIGCONT) }) } // the process exists, because nobody has waited for it
	defer wake()
	lines := bufio.NewReader(pipe)
	if line, err := lines.ReadString('\n'); line != "suspended\n" {
		h.Fatalf("the client printed %q, %v; want \"suspended\"", line, err)
	}
	third := h.release(app)
	for tries := 3; ; tries-- { // a request of the first client may take effect after a plan was made
		result, err := h.run(h.plan(wanted(h, app, "v3", deploy.Rolling, 2), third), run.Options{LeaseTTL: leaseTTL, Release: third.ID})
		if err == nil {
			break
		}
		if bourse.CodeOf(err) != bourse.CodeConflict || tries == 0 {
			h.Fatalf("the second deploy: %v, %+v; want success, or at most 3 conflicts", err, result)
		}
		h.Log("planned again: ", err)
	}
	h.is(app, 2, "v3")
	before := h.ids(app)
	began := time.Now()
	wake()
	var said clientResult
	if err := json.NewDecoder(lines).Decode(&said); err != nil {
		h.Fatalf("output of the first client: %v", err)
	}
	if err := first.Wait(); err != nil {
		h.Error(err)
	}
	h.Logf("the first client exited %s after it was continued: %s", time.Since(began).Round(time.Millisecond), said.Error)
	if !said.Overtaken || said.Result.Status != release.Interrupted || len(said.Result.Left) == 0 {
		h.Errorf("the first client's result: %+v, want overtaken, with an interrupted release and leftover machines", said)
	}
	h.is(app, 2, "v3")
	if after := h.ids(app); !slices.Equal(after, before) {
		h.Errorf("the machines are %v, want the unchanged %v", after, before)
	}
	if r := h.newest(app); r.ID != third.ID || r.Status != release.Complete {
		h.Errorf("the newest release is %+v, want %s, complete", r, third.ID)
	}
}

// ids returns the ids of an app's machines and of their versions.
func (h *house) ids(app bourse.AppName) (out []string) {
	h.Helper()
	for _, m := range h.machines(app) {
		out = append(out, string(m.ID)+" "+string(m.InstanceID))
	}
	return out
}
