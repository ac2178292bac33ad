package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// plans contains functions that plan changes to an app with two machines, by name.
var plans = map[string]func(*cluster) deploy.Plan{
	"rolling":   rolling,
	"bluegreen": bluegreen,
	"move":      move,
}

func (c *cluster) ids() (out []bourse.MachineID) {
	for id, m := range c.machines {
		if m.State != bourse.StateDestroyed {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// builder builds a plan and numbers its steps.
type builder struct{ deploy.Plan }

func (b *builder) add(s deploy.Step, after ...int) int {
	s.ID, s.After = len(b.Steps), after
	b.Steps = append(b.Steps, s)
	return s.ID
}

func serving(version string) *bourse.Config {
	c := config(version)
	c.Env["SERVES"], c.Env["CHECK"] = "yes", "passing"
	return c
}

// update adds the steps by which a rolling update changes a machine.
func (b *builder) update(c *cluster, id bourse.MachineID, to *bourse.Config, after ...int) int {
	m := c.machines[id]
	u := b.add(deploy.Step{Do: deploy.UpdateMachine{Config: to, Former: m.Config, Instance: m.InstanceID}, Machine: id}, after...)
	return b.add(deploy.Step{Do: deploy.AwaitReady{Smoke: true}, Machine: id}, u)
}

// rolling returns a plan that runs a command, updates the machines one after another, and then sets the first machine's
// metadata.
func rolling(c *cluster) deploy.Plan {
	b := &builder{deploy.Plan{App: "web", Reserve: true}}
	ids := c.ids()
	command := config("v2")
	command.Env["EXIT"] = "0"
	last := b.add(deploy.Step{Do: deploy.RunCommand{Config: command}})
	for _, id := range ids {
		last = b.update(c, id, serving("v2"), last)
	}
	b.add(deploy.Step{Do: deploy.SetMetadata{Metadata: map[string]string{"a": "b"}, Former: map[string]string{"a": ""}}, Machine: ids[0]}, last)
	return b.Plan
}

// bluegreen returns a plan that replaces each machine with a new one.
func bluegreen(c *cluster) deploy.Plan {
	b := &builder{deploy.Plan{App: "web", Reserve: true}}
	var ready, serve, cordon, stop []int
	for range c.ids() {
		g := b.add(deploy.Step{Do: deploy.MakeMachine{Config: serving("v2"), Cordoned: true}, Region: "gru"})
		ready = append(ready, b.add(deploy.Step{Do: deploy.AwaitReady{Smoke: true}, MadeBy: &g}, g))
	}
	for _, r := range ready {
		g := b.Steps[r].MadeBy
		serve = append(serve, b.add(deploy.Step{Do: deploy.UncordonMachine{}, MadeBy: g}, ready...))
	}
	know := b.add(deploy.Step{Do: deploy.AwaitProxies{}}, serve...)
	for _, id := range c.ids() {
		cordon = append(cordon, b.add(deploy.Step{Do: deploy.CordonMachine{}, Machine: id}, know))
	}
	know = b.add(deploy.Step{Do: deploy.AwaitProxies{}}, cordon...)
	for _, id := range c.ids() {
		stop = append(stop, b.add(deploy.Step{Do: deploy.StopMachine{}, Machine: id}, know))
	}
	for _, id := range c.ids() {
		b.add(deploy.Step{Do: deploy.DestroyMachine{}, Machine: id}, stop...)
	}
	return b.Plan
}

// move returns a plan that moves the first machine to another worker, with a new volume.
func move(c *cluster) deploy.Plan {
	b := &builder{deploy.Plan{App: "web"}}
	id := c.ids()[0]
	to := serving("v1")
	to.Mounts = []bourse.Mount{{Path: "/data"}}
	v := b.add(deploy.Step{Do: deploy.MakeVolume{Name: "data", SizeGB: 1}})
	m := b.add(deploy.Step{Do: deploy.MakeMachine{Config: to, Volume: &v, Stopped: true}}, v)
	cordon := b.add(deploy.Step{Do: deploy.CordonMachine{}, Machine: id}, m)
	know := b.add(deploy.Step{Do: deploy.AwaitProxies{}}, cordon)
	stop := b.add(deploy.Step{Do: deploy.StopMachine{}, Machine: id}, know)
	start := b.add(deploy.Step{Do: deploy.StartMachine{}, MadeBy: &m}, stop)
	ready := b.add(deploy.Step{Do: deploy.AwaitReady{}, MadeBy: &m}, start)
	b.add(deploy.Step{Do: deploy.DestroyMachine{}, Machine: id}, ready)
	return b.Plan
}

// TestStartOfWhatStillStops checks that a machine that is still stopping, at the request of a killed client, is started
// once it has stopped.
func TestStartOfWhatStillStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1).serve()
		id := c.ids()[0]
		become := func(s bourse.State) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.machines[id].State = s
		}
		become(bourse.StateStopping)
		time.AfterFunc(3*time.Second, func() { become(bourse.StateStopped) })
		b := &builder{deploy.Plan{App: "web"}}
		b.add(deploy.Step{Do: deploy.StartMachine{}, Machine: id})
		if result, err := Run(t.Context(), c, b.Plan, Options{}); err != nil || c.machines[id].State != bourse.StateStarted {
			t.Errorf("Run: %v, %+v", err, result)
		}
	})
}

// serve makes the machines serve requests.
func (c *cluster) serve() *cluster {
	for _, m := range c.machines {
		m.Config = serving("v1")
		c.changed(m)
	}
	return c
}

// bare replaces the machines' ids in a shape, because they differ between runs.
func bare(shape string) string {
	words := strings.Fields(shape)
	for i, w := range words {
		if w = strings.TrimLeft(w, "["); len(w) == 14 {
			words[i] = "machine"
		}
	}
	return strings.Join(words, " ")
}

// TestPlansAreCarriedOut checks that every plan succeeds and leaves no lease or reservation
// behind. It must not stop a machine while proxies may send requests to it.
func TestPlansAreCarriedOut(t *testing.T) {
	t.Parallel()
	for name, make := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				result, err := Run(t.Context(), c, make(c), Options{Release: release.NewID()})
				if err != nil || result.Status != release.Complete || len(result.Left) > 0 {
					t.Fatalf("Run: %v, %+v", err, result)
				}
				if want := []release.Status{release.Running, release.Complete}; !slices.Equal(c.releases, want) {
					t.Errorf("the release was %v, want %v", c.releases, want)
				}
				c.check(t, "")
			})
		})
	}
}

// check reports errors noticed by the cluster, and leases and reservations that are still held.
func (c *cluster) check(t *testing.T, when string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		t.Error(when + w)
	}
	for id, m := range c.machines {
		if m.State != bourse.StateDestroyed && m.nonce != "" && m.nonce != "other" && time.Now().Add(c.skew).Before(m.expires) && time.Now().After(c.silent[id]) {
			t.Errorf("%sthe lease of machine %s is still held: %v", when, id, c.seen)
		}
	}
	if len(c.reserved) > 0 {
		t.Errorf("%s%d reservations are still held", when, len(c.reserved))
	}
}

// TestEveryFaultAtEveryCall injects each fault into each call of each plan. The app must end up either as planned or
// unchanged, or the result must list the changes that were not undone.
func TestEveryFaultAtEveryCall(t *testing.T) {
	t.Parallel()
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls int
			var planned, former string
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				former = c.shape()
				if _, err := Run(t.Context(), c, plan(c), Options{}); err != nil {
					t.Fatal(err)
				}
				calls, planned = c.calls, bare(c.shape())
			})
			for _, f := range []fault{refused, lostDone, lostNot, silent, gone, stolen, expired, jump, back, replaces, pulls, delayed} {
				ended := map[string]int{}
				for n := 1; n <= calls; n++ {
					synctest.Test(t, func(t *testing.T) { ended[oneFault(t, plan, f, n, planned, former)]++ })
				}
				t.Logf("%s at each of %d calls: %v", f, calls, ended)
			}
		})
	}
}

// oneFault executes a plan with a fault at call n, and returns how the run ended.
func oneFault(t *testing.T, plan func(*cluster) deploy.Plan, f fault, n int, planned, former string) string {
	t.Helper()
	c := newCluster(t, 2).serve()
	call := ""
	c.inject = func(i int, name string, _ bourse.MachineID) fault {
		if i == n {
			call = name
			return f
		}
		return ""
	}
	result, err := Run(t.Context(), c, plan(c), Options{Owner: "ana"})
	time.Sleep(f.lands())
	fail := func(what string) {
		t.Helper()
		t.Errorf("%s at call %d, %s: %s: error %v, status %s, left %+v\n  is %s\n  was %s\n  plan %s\n  %v", f, n, call, what, err, result.Status, result.Left,
			c.shape(), former, planned, c.seen)
	}
	if f != refused || call != "release" && call != "end reservation" {
		// Unreleased leases and reservations expire later.
		c.check(t, fmt.Sprintf("%s at call %d, %s (%v): ", f, n, call, err))
	}
	switch {
	case err == nil && len(result.Left) > 0: // the machine of a command could not be destroyed
		return "planned, but for " + result.Left[0].What[:21]
	case err == nil && bare(c.shape()) != planned:
		fail("the app does not match the plan")
	case err == nil:
		return "planned"
	case len(result.Left) == 0 && result.Status != release.Failed, len(result.Left) > 0 && result.Status != release.Interrupted:
		fail("the status is wrong")
	case len(result.Left) == 0 && c.shape() != former:
		fail("the app is not in its former state")
	case len(result.Left) == 0:
		return "former"
	case f != gone && f != stolen && !strings.Contains(result.Left[0].What, "was done but not undone"):
		fail("something is left")
	}
	return "left"
}

// TestAMachineThatIsNeverReady checks that everything is undone if a machine does not
// become ready, and that the machine's last output is reported first.
func TestAMachineThatIsNeverReady(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*bourse.Config){
		"its check fails":            func(c *bourse.Config) { c.Env["CHECK"] = "critical" },
		"the machine does not start": func(c *bourse.Config) { c.Env["FAILS"] = "yes" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				former := c.shape()
				b := &builder{deploy.Plan{App: "web"}}
				ids := c.ids()
				last := b.update(c, ids[0], serving("v2"))
				bad := serving("v2")
				spoil(bad)
				b.update(c, ids[1], bad, last)
				var news []Event
				result, err := Run(t.Context(), c, b.Plan, Options{Wait: time.Minute, Events: func(e Event) { news = append(news, e) }})
				if code := bourse.CodeOf(err); code != bourse.CodeTimeout && code != bourse.CodeFailedPrecondition || result.Status != release.Failed {
					t.Errorf("Run: %v, status %s", err, result.Status)
				}
				if c.shape() != former {
					t.Errorf("the app is %s, was %s", c.shape(), former)
				}
				failed := slices.IndexFunc(news, func(e Event) bool { return e.Evidence != nil && len(e.Evidence.Lines) > 0 })
				undoing := slices.IndexFunc(news, func(e Event) bool { return e.State == Undoing })
				if failed < 0 || undoing < failed {
					t.Errorf("the evidence is event %d, the first undoing is event %d", failed, undoing)
				}
				c.check(t, "")
			})
		})
	}
}

// TestTwoRunsAtOnce checks that only one of two concurrent runs executes its plan. The
// other run must wait, report which run it waits for, and then fail because the machines
// have changed.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		errs := make(chan error, 2)
		waited := make(chan string, 100)
		for i := range 2 {
			plan := rolling(c)
			plan.Reserve = false
			go func() {
				_, err := Run(t.Context(), c, plan, Options{Owner: fmt.Sprint("deployer ", i), Events: func(e Event) {
					if e.State == Waiting {
						waited <- e.Text
					}
				}})
				errs <- err
			}()
		}
		a, b := <-errs, <-errs
		if (a == nil) == (b == nil) || bourse.CodeOf(errors.Join(a, b)) != bourse.CodeConflict {
			t.Errorf("the runs ended with %v and %v, want one conflict", a, b)
		}
		if text := <-waited; !strings.Contains(text, "is leased by acme (deployer ") {
			t.Errorf("the second run waited with %q", text)
		}
		c.check(t, "")
	})
}

// TestALeaseIsHeld checks that a run that does not wait for leases fails immediately, and that the error names the
// lease's holder.
func TestALeaseIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		m := c.machines[c.ids()[1]]
		m.nonce, m.by, m.expires = "other", "bo@desk, release v7", time.Now().Add(time.Hour)
		result, err := Run(t.Context(), c, rolling(c), Options{LeaseWait: -1})
		if bourse.CodeOf(err) != bourse.CodeConflict || !strings.Contains(err.Error(), "acme (bo@desk, release v7)") || len(result.Left) > 0 {
			t.Errorf("Run: %v, left %+v", err, result.Left)
		}
		c.check(t, "")
	})
}

// TestAMachineChangesWhileItIsLeased checks that a run that had to wait for a lease notices
// that the machine was changed in the meantime.
func TestAMachineChangesWhileItIsLeased(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(m *fakeMachine)
		want   bourse.Code
	}{
		"nothing":      {func(*fakeMachine) {}, ""},
		"updated":      {func(m *fakeMachine) { m.InstanceID = bourse.NewInstanceID() }, bourse.CodeConflict},
		"cordoned":     {func(m *fakeMachine) { m.Cordoned = true }, bourse.CodeConflict},
		"paused":       {func(m *fakeMachine) { m.Config.Metadata = map[string]string{deploy.KeyPaused: "true"} }, bourse.CodeConflict},
		"other labels": {func(m *fakeMachine) { m.Config.Metadata = map[string]string{"a": "b"} }, ""},
		"destroyed":    {func(m *fakeMachine) { m.State = bourse.StateDestroyed }, bourse.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1).serve()
				id := c.ids()[0]
				m := c.machines[id]
				b := &builder{deploy.Plan{App: "web", Seen: map[bourse.MachineID]deploy.Seen{id: {Instance: m.InstanceID}}}}
				b.add(deploy.Step{Do: deploy.CordonMachine{}, Machine: id})
				m.nonce, m.by, m.expires = "other", "bo", time.Now().Add(10*time.Second)
				time.AfterFunc(5*time.Second, func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					tt.change(m)
				})
				if _, err := Run(t.Context(), c, b.Plan, Options{}); bourse.CodeOf(err) != tt.want {
					t.Errorf("Run: %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// TestInterrupts interrupts a run at each of its events. Everything must be undone.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := 0
			for n := 1; n < 200; n++ {
				done := false
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2).serve()
					former := c.shape()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					events = 0
					result, err := Run(ctx, c, plan(c), Options{Events: func(Event) {
						if events++; events == n {
							cancel()
						}
					}})
					switch {
					case err == nil:
						done = true
					case bourse.CodeOf(err) != bourse.CodeCanceled:
						t.Errorf("interrupted at event %d: %v", n, err)
					case len(result.Left) == 0 && c.shape() != former:
						t.Errorf("interrupted at event %d the app is %s, was %s", n, c.shape(), former)
					case len(result.Left) > 0 && !slices.Contains(c.seen, "destroy"):
						t.Errorf("interrupted at event %d: left %+v", n, result.Left)
					}
					c.check(t, "")
				})
				if done {
					t.Logf("%d events", events)
					return
				}
			}
		})
	}
}

// TestAnUpdateLandsAfterAnInterrupt interrupts a run before an update with a lost answer takes effect. If the run
// reports that the update was undone, the update must not take effect afterward.
func TestAnUpdateLandsAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{replaces, pulls, delayed} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				former := c.shape()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.inject = func(_ int, call string, _ bourse.MachineID) fault {
					if call != "update" || ctx.Err() != nil {
						return ""
					}
					cancel()
					return f
				}
				result, err := Run(ctx, c, rolling(c), Options{})
				time.Sleep(f.lands())
				if bourse.CodeOf(err) != bourse.CodeCanceled || result.Status != release.Failed || c.shape() != former {
					t.Errorf("Run: %v, %+v\n  is %s\n  was %s\n  %v", err, result, c.shape(), former, c.seen)
				}
				c.check(t, "")
			})
		})
	}
}

// TestAnInterruptBeforeAMachineIsDestroyed checks that a run that is interrupted just before it destroys the first
// machine does not destroy any machines and undoes everything.
func TestAnInterruptBeforeAMachineIsDestroyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1).serve()
		former := c.shape()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		plan := bluegreen(c)
		last := len(plan.Steps) - 1
		result, err := Run(ctx, c, plan, Options{Events: func(e Event) {
			if e.Step == last && e.State == Running {
				cancel()
				time.Sleep(time.Millisecond) // wait until the run has noticed the interrupt
			}
		}})
		if bourse.CodeOf(err) != bourse.CodeCanceled || len(result.Left) > 0 || c.shape() != former {
			t.Errorf("Run: %v, %+v\n  is %s\n  was %s", err, result, c.shape(), former)
		}
		c.check(t, "")
	})
}

func TestASecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		abandon := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		result, err := Run(ctx, c, bluegreen(c), Options{Abandon: abandon, Events: func(e Event) {
			switch {
			case e.Step == 5 && e.State == Running: // both new machines are ready
				cancel()
			case e.State == Undoing && e.Step == WholeRun:
				close(abandon)
			}
		}})
		if bourse.CodeOf(err) != bourse.CodeCanceled || result.Status != release.Interrupted || len(result.Left) < 2 || time.Since(began) > 10*time.Second {
			t.Errorf("Run: %v, %+v after %s", err, result, time.Since(began))
		}
		for _, l := range result.Left {
			if l.Next == "" || l.Machine == "" {
				t.Errorf("left: %+v", l)
			}
		}
	})
}

// TestAllOrNothing checks that a run whose capacity cannot be reserved fails before anything is changed.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		c.room = 1
		former := c.shape()
		_, err := Run(t.Context(), c, bluegreen(c), Options{})
		if bourse.CodeOf(err) != bourse.CodeInsufficient || c.shape() != former || slices.Contains(c.seen, "create") {
			t.Errorf("Run: %v, calls %v", err, c.seen)
		}
		c.check(t, "")
	})
}

// TestMoreVolumesThanWorkers checks that a volume is created even if every worker already
// has a volume with the same name.
func TestMoreVolumesThanWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		c.apart = true
		result, err := Run(t.Context(), c, move(c), Options{})
		if err != nil || result.Status != release.Complete || len(c.volumes) != 1 {
			t.Errorf("Run: %v, %+v, volumes %v", err, result, c.volumes)
		}
		c.check(t, "")
	})
}

// TestOneSilentWorker checks that a worker that does not answer delays only the steps of
// its own machines.
func TestOneSilentWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 12).serve()
		ids := c.ids()
		c.silent[ids[5]] = time.Now().Add(20 * time.Second)
		b := &builder{deploy.Plan{App: "web"}}
		for _, id := range ids {
			b.update(c, id, serving("v2"))
		}
		began := time.Now()
		ends := map[bourse.MachineID]time.Duration{}
		_, err := Run(t.Context(), c, b.Plan, Options{Events: func(e Event) {
			if e.State == Done && e.Step != WholeRun {
				ends[e.Machine] = time.Since(began)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for id, took := range ends {
			if id != ids[5] && took > 5*time.Second {
				t.Errorf("machine %s of another worker took %s", id, took)
			}
		}
		c.check(t, "")
	})
}

// TestLeasesAreExtended checks that leases are extended for as long as a step takes.
func TestLeasesAreExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1).serve()
		b := &builder{deploy.Plan{App: "web"}}
		to := serving("v2")
		to.Env["CHECK"] = "critical"
		id := c.ids()[0]
		b.update(c, id, to)
		go func() {
			time.Sleep(4 * time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			m := c.machines[id]
			if !time.Now().Before(m.expires) {
				c.wrong = append(c.wrong, "the lease has expired")
			}
			m.Config.Env["CHECK"] = "passing"
			c.changed(m)
		}()
		if _, err := Run(t.Context(), c, b.Plan, Options{}); err != nil {
			t.Error(err)
		}
		c.check(t, "")
	})
}

func TestACommandThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1).serve()
		former := c.shape()
		b := &builder{deploy.Plan{App: "web"}}
		command := config("v2")
		command.Env["EXIT"] = "3"
		last := b.add(deploy.Step{Do: deploy.RunCommand{Config: command}})
		b.update(c, c.ids()[0], serving("v2"), last)
		var lines []string
		result, err := Run(t.Context(), c, b.Plan, Options{Events: func(e Event) {
			if e.State == Output {
				lines = append(lines, e.Line.Text)
			}
		}})
		if err == nil || !strings.Contains(err.Error(), "status 3") || len(lines) != 1 || len(result.Failed) != 1 || len(result.Failed[0].Lines) != 1 {
			t.Errorf("Run: %v, lines %q, %+v", err, lines, result.Failed)
		}
		if c.shape() != former {
			t.Errorf("the app is %s, was %s", c.shape(), former)
		}
		c.check(t, "")
	})
}

func TestRefusedPlan(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]deploy.Plan{
		"it is refused": {Refused: []string{"no room"}},
		"a volume is not mounted": {Steps: []deploy.Step{
			{ID: 0, Do: deploy.MakeVolume{Name: "data", SizeGB: 1}},
			{ID: 1, Do: deploy.MakeMachine{Config: config("v1"), Volume: new(0)}, After: []int{0}},
		}},
	} {
		c := newCluster(t, 0)
		if _, err := Run(t.Context(), c, plan, Options{}); bourse.CodeOf(err) != bourse.CodeInvalid || c.calls > 0 {
			t.Errorf("%s: %v after %d calls", name, err, c.calls)
		}
	}
}
