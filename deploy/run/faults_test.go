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
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// slow returns a plan that updates the first machine and then the second, whose check
// passes only after a minute.
func slow(c *cluster) deploy.Plan {
	b := &builder{deploy.Plan{App: "web"}}
	ids := c.ids()
	last := b.update(c, ids[0], serving("v2"))
	late := serving("v2")
	late.Env["CHECK"] = "critical"
	b.update(c, ids[1], late, last)
	time.AfterFunc(time.Minute, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late.Env["CHECK"] = "passing"
		c.changed(c.machines[ids[1]])
	})
	return b.Plan
}

// TestAMachineCrashesAfterItWasReady checks that a run fails if a machine crashes later
// during the run, even though it was ready before. Everything must be undone.
func TestAMachineCrashesAfterItWasReady(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"and stays down": false, "and starts again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				former, first := c.shape(), c.ids()[0]
				var news []Event
				began := time.Now()
				result, err := Run(t.Context(), c, slow(c), Options{Events: func(e Event) {
					news = append(news, e)
					if e.Step == 1 && e.State == Done {
						time.AfterFunc(30*time.Second, func() { c.crash(first, machinesapi.ExitEvent{ExitCode: 3}, again) })
					}
				}})
				if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "it crashed 30s after it became ready: its program exited with status 3") ||
					result.Status != release.Failed || result.Steps[1].State != Failed || time.Since(began) > 40*time.Second {
					t.Errorf("after %s: %v, %+v", time.Since(began), err, result)
				}
				if c.shape() != former {
					t.Errorf("the app is %s, was %s", c.shape(), former)
				}
				failed := slices.IndexFunc(news, func(e Event) bool { return e.Step == 1 && e.Evidence != nil && len(e.Evidence.Lines) > 0 })
				if undoing := slices.IndexFunc(news, func(e Event) bool { return e.State == Undoing }); failed < 0 || undoing < failed {
					t.Errorf("the last lines are event %d, the first undoing is event %d", failed, undoing)
				}
				c.check(t, "")
			})
		})
	}
}

// TestTheLastMachineIsWatched checks that a run fails if a machine crashes some time after it became ready, even if it was
// the last machine to be changed. A replaced machine must not be destroyed before that time. An interrupt within that
// time must undo everything.
func TestTheLastMachineIsWatched(t *testing.T) {
	t.Parallel()
	for name, plan := range plans {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", interrupted: ", interrupted), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2).serve()
					former, p := c.shape(), plan(c)
					last := -1
					for i := range p.Steps {
						if deploy.Is[deploy.AwaitReady](p.Steps[i].Do) {
							last = i
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var ready time.Time
					result, err := Run(ctx, c, p, Options{Watch: 10 * time.Second, Events: func(e Event) {
						if e.Step == last && e.State == Done {
							ready = e.At
							time.AfterFunc(2500*time.Millisecond, func() {
								if interrupted {
									cancel()
								} else {
									c.crash(e.Machine, machinesapi.ExitEvent{ExitCode: 3}, true)
								}
							})
						}
					}})
					if code := bourse.CodeOf(err); interrupted != (code == bourse.CodeCanceled) || interrupted == (code == bourse.CodeFailedPrecondition) {
						t.Errorf("Run: %v", err)
					}
					if result.Status != release.Failed || c.shape() != former || time.Since(ready) > 9*time.Second {
						t.Errorf("%s after it became ready: %+v\n  is %s\n  was %s", time.Since(ready), result, c.shape(), former)
					}
					c.check(t, "")
				})
			})
		}
	}
}

// TestHowLongMachinesAreWatched checks that a run without crashes ends as soon as the last
// machine has been watched for long enough, even if machines were destroyed.
func TestHowLongMachinesAreWatched(t *testing.T) {
	t.Parallel()
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				last, p := time.Time{}, plan(c)
				_, err := Run(t.Context(), c, p, Options{Watch: 10 * time.Second, Events: func(e Event) {
					if e.Step >= 0 && e.State == Done && deploy.Is[deploy.AwaitReady](p.Steps[e.Step].Do) {
						last = e.At
					}
				}})
				if watched := time.Since(last); err != nil || watched < 10*time.Second || watched > 11*time.Second {
					t.Errorf("Run: %v, %s after the last machine was ready", err, watched)
				}
				c.check(t, "")
			})
		})
	}
}

// TestWhatIsNoCrash checks that a program that exits with status 0, is stopped because it is idle, or crashes after the
// end of the run does not count as crashed.
func TestWhatIsNoCrash(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		exit  machinesapi.ExitEvent
		again bool
		after time.Duration
	}{
		"it exits with status 0":             {machinesapi.ExitEvent{}, false, 30 * time.Second},
		"it is asleep":                       {machinesapi.ExitEvent{ExitCode: 143, RequestedStop: true}, false, 30 * time.Second},
		"it was asleep":                      {machinesapi.ExitEvent{ExitCode: 143, RequestedStop: true}, true, 30 * time.Second},
		"it crashes when the deploy is over": {machinesapi.ExitEvent{ExitCode: 3}, false, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				first := c.ids()[0]
				result, err := Run(t.Context(), c, slow(c), Options{Events: func(e Event) {
					if e.Step == 1 && e.State == Done {
						time.AfterFunc(tt.after, func() { c.crash(first, tt.exit, tt.again) })
					}
				}})
				if err != nil || result.Status != release.Complete {
					t.Errorf("Run: %v, %+v", err, result)
				}
				time.Sleep(2 * tt.after)
				c.check(t, "")
			})
		})
	}
}

// TestACrashPastTheLastReturn checks that a crash does not end a run that has begun to destroy the machine that the
// crashed one replaces, because the run can then no longer be undone.
func TestACrashPastTheLastReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		plan := bluegreen(c)
		last := len(plan.Steps) - 1
		var made bourse.MachineID
		_, err := Run(t.Context(), c, plan, Options{Events: func(e Event) {
			switch {
			case e.Step == 1 && e.State == Done:
				made = e.Machine
			case e.Step == last && e.State == Running:
				c.crash(made, machinesapi.ExitEvent{ExitCode: 3}, true)
			}
		}})
		if err != nil {
			t.Error(err)
		}
		c.check(t, "")
	})
}

// TestASuspendedClientLeavesWhatAnotherHasMade suspends a client after each possible call, for longer than its leases
// last, while another client deploys the app. When the first client resumes, it must notice this and leave the other
// client's changes alone.
func TestASuspendedClientLeavesWhatAnotherHasMade(t *testing.T) {
	t.Parallel()
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := map[string]int{}
			for n, more := 1, true; more; n++ {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2).serve()
					c.inject = func(i int, _ string, _ bourse.MachineID) fault {
						if i == n {
							return suspends
						}
						return ""
					}
					p := plan(c)
					p.Seen = map[bourse.MachineID]deploy.Seen{}
					for id, m := range c.machines {
						p.Seen[id] = deploy.Seen{Instance: m.InstanceID}
					}
					result, err := Run(t.Context(), c, p, Options{})
					more = c.calls >= n
					ended[c.untouched(t, n, &result, err)]++
				})
			}
			t.Logf("%v", ended)
		})
	}
}

// untouched checks the machines after the client was suspended after call n, and returns
// how the run ended.
func (c *cluster) untouched(t *testing.T, n int, result *Result, err error) string {
	t.Helper()
	when := fmt.Sprintf("suspended after call %d (%v): ", n, err)
	c.check(t, when)
	for id, m := range c.machines {
		version, another := c.others[id]
		switch {
		case another && (m.InstanceID != version || m.State != bourse.StateStarted || m.Cordoned || len(m.Config.Metadata) > 0):
			t.Errorf("%sanother client's machine %s is %s, cordoned: %v, %v\n%v", when, id, m.State, m.Cordoned, m.Config.Metadata, c.seen)
		case !another && len(c.others) > 0 && m.State != bourse.StateDestroyed &&
			!slices.ContainsFunc(result.Left, func(l Leftover) bool { return l.Machine == id }):
			t.Errorf("%smachine %s was created but is not reported: %+v", when, id, result.Left)
		}
	}
	switch {
	case err == nil:
		return "over before"
	case errors.Is(err, ErrOvertaken):
		for _, l := range result.Left {
			if !strings.Contains(l.Next, "bourse status") {
				t.Errorf("%sleft %+v", when, l)
			}
		}
		return "overtaken"
	case bourse.CodeOf(err) == bourse.CodeConflict && len(result.Left) == 0:
		return "changed before it began"
	}
	t.Errorf("%s%+v", when, result)
	return "?"
}

// TestMadeMachinesVanish checks that a machine that the run created counts as undone if it no longer exists.
func TestMadeMachinesVanish(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan func(*cluster) deploy.Plan
		call string // call that is refused, and at which the created machines disappear
		n    int
	}{
		"before its lease was taken": {bluegreen, "create", 2},
		"while its lease is held":    {bluegreen, "cordon", 3},
		"with a volume":              {move, "cordon", 1},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, planned again: %v", name, again), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2).serve()
					former, old := c.shape(), c.ids()
					n := 0
					c.inject = func(_ int, call string, _ bourse.MachineID) fault {
						if call != tt.call {
							return ""
						}
						if n++; n != tt.n {
							return ""
						}
						for id, m := range c.machines {
							if !slices.Contains(old, id) {
								m.State = bourse.StateDestroyed
							}
						}
						return refused
					}
					plan := tt.plan(c)
					plan.Reserve = false
					opts := Options{}
					if again {
						opts.Replan = func(context.Context) (deploy.Plan, error) { return plan, nil }
					}
					result, err := Run(t.Context(), c, plan, opts)
					if err == nil || result.Status != release.Failed || len(result.Left) > 0 || c.shape() != former {
						t.Errorf("Run: %v, %s, left %+v; the app is %s, was %s", err, result.Status, result.Left, c.shape(), former)
					}
				})
			})
		}
	}
}

// canary returns a plan that creates a machine, destroys it once it is ready, and then
// updates the first machine.
func canary(c *cluster) deploy.Plan {
	b := &builder{deploy.Plan{App: "web"}}
	m := b.add(deploy.Step{Do: deploy.MakeMachine{Config: serving("v2")}})
	ready := b.add(deploy.Step{Do: deploy.AwaitReady{}, MadeBy: &m}, m)
	b.update(c, c.ids()[0], serving("v2"), b.add(deploy.Step{Do: deploy.DestroyMachine{}, MadeBy: &m}, ready))
	return b.Plan
}

// TestACanaryVanishes checks that destroying a machine that the run created succeeds if the
// machine no longer exists.
func TestACanaryVanishes(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("planned again: %v", again), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1).serve()
				old := c.ids()[0]
				plan := canary(c)
				opts := Options{Events: func(e Event) {
					c.mu.Lock()
					defer c.mu.Unlock()
					for id, m := range c.machines {
						if id != old && e.Step == 2 && e.State == Running {
							m.State = bourse.StateDestroyed
						}
					}
				}}
				if again {
					opts.Replan = func(context.Context) (deploy.Plan, error) { return plan, nil }
				}
				if result, err := Run(t.Context(), c, plan, opts); err != nil || c.machines[old].Config.Env["VERSION"] != "v2" {
					t.Errorf("Run: %v, %+v", err, result)
				}
			})
		})
	}
}

// TestRefusalsAreFinal checks that refused requests are not repeated: the run must fail immediately with the server's
// message and undo everything.
func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault fault
		code  bourse.Code
		call  string
		times int // number of calls that succeed before one is refused
		plan  func(*cluster) deploy.Plan
	}{
		{noImage, bourse.CodeNotFound, "update", 1, slow},
		{noImage, bourse.CodeNotFound, "create", 1, bluegreen},
		{noRoom, bourse.CodeInsufficient, "create", 1, bluegreen},
		{noRoom, bourse.CodeInsufficient, "create", 0, move},
		{noRoom, bourse.CodeInsufficient, "make volume", 0, move},
	} {
		t.Run(fmt.Sprint(tt.fault, " at ", tt.call, " after ", tt.times), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				former := c.shape()
				plan := tt.plan(c)
				plan.Reserve = false // do not reserve, so that capacity can run out after the plan was made
				asked := 0
				c.inject = func(_ int, call string, _ bourse.MachineID) fault {
					if call == tt.call {
						asked++
					}
					again := asked > tt.times+1 && call != "make volume" // a volume is requested twice, so refuse both requests
					if call != tt.call || asked <= tt.times || again {
						return ""
					}
					return tt.fault
				}
				began := time.Now()
				result, err := Run(t.Context(), c, plan, Options{})
				if bourse.CodeOf(err) != tt.code || !strings.Contains(err.Error(), "injected") || result.Status != release.Failed || time.Since(began) > 5*time.Second {
					t.Errorf("after %s and %d calls: %v, %+v", time.Since(began), asked, err, result)
				}
				if c.shape() != former {
					t.Errorf("the app is %s, was %s", c.shape(), former)
				}
				c.check(t, "")
			})
		})
	}
}
