package deploy

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// wanted is an app of so many machines of a version.
func wanted(h *house, app bourse.AppName, version string, strategy deploy.Strategy, machines int) deploy.App {
	h.Helper()
	return deploy.App{
		Name: app, Primary: "gru", Strategy: strategy, Wait: bourse.Duration(patience), Reserve: true,
		Groups: []deploy.Group{{
			Name: "app", Config: *config(h, version), Smoke: true, Counts: []deploy.Count{{Region: "gru", Count: machines}},
		}},
	}
}

// plan plans for such an app, whatever is there.
func (h *house) plan(want deploy.App) deploy.Plan {
	h.Helper()
	p := deploy.Make(want, deploy.State{App: want.Name, Machines: h.machines(want.Name)}, deploy.Options{})
	if len(p.Refused) > 0 {
		h.Fatalf("the plan is refused: %v", p.Refused)
	}
	return p
}

// apart plans an update of each machine that waits only for those of its own worker.
func (h *house) apart(app bourse.AppName, version string) (p deploy.Plan, steps map[bourse.WorkerID][]int) {
	h.Helper()
	p, steps = deploy.Plan{App: app}, map[bourse.WorkerID][]int{}
	add := func(s deploy.Step, after []int) int {
		s.ID, s.After = len(p.Steps), after
		p.Steps = append(p.Steps, s)
		return s.ID
	}
	last := map[bourse.WorkerID][]int{}
	for _, m := range h.machines(app) {
		next := *m.Config
		next.Env = map[string]string{machineVariable: version}
		u := add(deploy.Step{Do: deploy.UpdateMachine, Machine: m.ID, Config: &next, Former: m.Config, Instance: m.InstanceID}, last[m.Worker])
		ready := add(deploy.Step{Do: deploy.AwaitReady, Machine: m.ID, Smoke: true}, []int{u})
		last[m.Worker], steps[m.Worker] = []int{ready}, append(steps[m.Worker], ready)
	}
	return p, steps
}
