package run

import (
	"context"
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

// planner returns a function that plans to update all machines to a version. The plan is
// based on the machines' state when the function is called.
func (c *cluster) planner(version string) func(context.Context) (deploy.Plan, error) {
	return func(context.Context) (deploy.Plan, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		b := &builder{deploy.Plan{App: "web", Seen: map[bourse.MachineID]deploy.Seen{}}}
		var last []int
		for _, id := range c.ids() {
			b.Seen[id] = deploy.Seen{Instance: c.machines[id].InstanceID}
			if c.machines[id].Config.Env["VERSION"] != version {
				last = []int{b.update(c, id, serving(version), last...)}
			}
		}
		return b.Plan, nil
	}
}

// TestThePlanIsMadeAgain checks that a run leads to the desired state even if machines change between the first plan
// and the acquisition of their leases.
func TestThePlanIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *cluster, id bourse.MachineID){
		"nothing": func(*cluster, bourse.MachineID) {},
		"a machine was updated": func(c *cluster, id bourse.MachineID) {
			c.machines[id].InstanceID, c.machines[id].Config = bourse.NewInstanceID(), serving("v0")
		},
		"a machine is already in the desired state": func(c *cluster, id bourse.MachineID) {
			c.machines[id].InstanceID, c.machines[id].Config = bourse.NewInstanceID(), serving("v2")
		},
		"a machine is gone": func(c *cluster, id bourse.MachineID) { c.machines[id].State = bourse.StateDestroyed },
		"a machine is new":  func(c *cluster, _ bourse.MachineID) { c.add(serving("v1"), false) },
		"the last machine is gone": func(c *cluster, _ bourse.MachineID) {
			for _, m := range c.machines {
				m.State = bourse.StateDestroyed
			}
		},
		"a machine is being updated": func(c *cluster, id bourse.MachineID) {
			m := c.machines[id]
			c.land(m, replaces, func() error {
				m.InstanceID, m.Config = bourse.NewInstanceID(), serving("v0")
				c.changed(m)
				return nil
			})
		},
		"a killed client's leases have not ended": func(c *cluster, _ bourse.MachineID) {
			for _, m := range c.machines {
				m.nonce, m.by, m.expires = "killed", "ana", time.Now().Add(10*time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				replan := c.planner("v2")
				plan, _ := replan(t.Context())
				change(c, c.ids()[0])
				result, err := Run(t.Context(), c, plan, Options{Release: release.NewID(), Replan: replan})
				if err != nil || result.Status != release.Complete {
					t.Fatalf("Run: %v, %+v", err, result)
				}
				if again, _ := replan(t.Context()); len(again.Steps) > 0 {
					t.Errorf("more steps remain: %+v", again.Steps)
				}
				c.check(t, "")
			})
		})
	}
}

// TestAWorkerIsAwayWhenThePlanIsMadeAgain checks that a run waits for a machine whose
// worker stops answering after the first plan was made.
func TestAWorkerIsAwayWhenThePlanIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		plan, _ := c.planner("v2")(t.Context())
		away := time.Now().Add(10 * time.Second)
		replan := func(ctx context.Context) (deploy.Plan, error) {
			p, err := c.planner("v2")(ctx)
			if first := c.ids()[0]; time.Now().Before(away) { // a plan omits machines whose workers do not answer
				p.Steps = nil
				p.Seen[first] = deploy.Seen{Instance: p.Seen[first].Instance, Lost: true}
			}
			return p, err
		}
		if _, err := Run(t.Context(), c, plan, Options{Replan: replan}); err != nil || strings.Contains(c.shape(), "v1") {
			t.Errorf("Run: %v; it is %s", err, c.shape())
		}
		c.check(t, "")
	})
}

// TestTwoRunsOneAfterTheOther checks that the second of two runs waits for the first and then continues from its
// result.
func TestTwoRunsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2).serve()
		ended := make(chan error, 2)
		for _, version := range []string{"v2", "v3"} {
			replan := c.planner(version)
			plan, _ := replan(t.Context())
			go func() {
				_, err := Run(t.Context(), c, plan, Options{Owner: "deploy of " + version, Replan: replan})
				ended <- err
			}()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if shape := c.shape(); strings.Contains(shape, "v1") || strings.Contains(shape, "v2") == strings.Contains(shape, "v3") {
			t.Errorf("it is %s", shape)
		}
		c.check(t, "")
	})
}

// TestAResumedRelease checks that a resumed release that fails remains interrupted, and that a run that cannot
// acquire its leases does not change the release's status.
func TestAResumedRelease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leased bool
		want   []release.Status
	}{
		"another client holds the leases": {true, nil},
		"it fails":                        {false, []release.Status{release.Running, release.Interrupted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2).serve()
				if tt.leased {
					m := c.machines[c.ids()[1]]
					m.nonce, m.expires = "other", time.Now().Add(time.Hour)
				}
				c.inject = func(_ int, call string, _ bourse.MachineID) fault {
					if call == "update" {
						return noImage
					}
					return ""
				}
				replan := c.planner("v2")
				plan, _ := replan(t.Context())
				result, err := Run(t.Context(), c, plan, Options{Release: release.NewID(), Resumed: true, Replan: replan})
				if err == nil || result.Status != release.Interrupted || !slices.Equal(c.releases, tt.want) {
					t.Errorf("Run: %v, %+v; the release was %v, want %v", err, result, fmt.Sprint(c.releases), tt.want)
				}
			})
		})
	}
}
