package deploy

import (
	"encoding/json"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// wanted returns an app with the given number of machines of a version.
func wanted(h *house, app bourse.AppName, version string, strategy deploy.Strategy, machines int) deploy.App {
	h.Helper()
	return deploy.App{
		Name: app, Primary: "gru", Strategy: strategy, Wait: bourse.Duration(waitTimeout), Reserve: true,
		Groups: []deploy.Group{{
			Name: "app", Config: *config(h, version), Smoke: true, Counts: []deploy.Count{{Region: "gru", Count: machines}},
		}},
	}
}

// release creates a release of an app.
func (h *house) release(app bourse.AppName) release.Release {
	h.Helper()
	r, err := h.api.Releases(app).Create(h.Context(), machinesapi.CreateRelease{Metadata: json.RawMessage(`{"kept":"yes"}`)})
	if err != nil {
		h.Fatalf("create a release of app %s: %v", app, err)
	}
	return r
}

// plan plans a deploy of an app from its current state, as the given release.
func (h *house) plan(want deploy.App, as release.Release) deploy.Plan {
	h.Helper()
	p := deploy.Make(want, deploy.State{App: want.Name, Machines: h.machines(want.Name)}, deploy.Options{Release: as.ID, Version: as.Version})
	if len(p.Refused) > 0 {
		h.Fatalf("the plan contains refusals, want none: %v", p.Refused)
	}
	return p
}

// back plans to undo a release. If that is refused because a former machine no longer
// exists, it plans to deploy the former version again.
func (h *house) back(was deploy.App, undone, as release.Release) deploy.Plan {
	h.Helper()
	have := deploy.State{App: was.Name, Machines: h.machines(was.Name), Versions: map[bourse.MachineID][]machinesapi.Version{}}
	for _, m := range have.Machines {
		versions, err := h.api.Versions(h.Context(), was.Name, m.ID)
		if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound { // not_found means that the machine was just destroyed
			h.Fatalf("versions of %s: %v", m.ID, err)
		}
		have.Versions[m.ID] = versions
	}
	p := deploy.Undo(have, undone.ID, deploy.Pace{Wait: bourse.Duration(waitTimeout), Smoke: true})
	if len(p.Refused) > 0 {
		h.Logf("the release cannot be undone: %v", p.Refused)
		return h.plan(was, as)
	}
	return p
}

// perWorker plans an update in which each machine waits only for the machines on its own worker. steps contains the
// last step of each machine, by worker.
func (h *house) perWorker(app bourse.AppName, version string) (p deploy.Plan, steps map[bourse.WorkerID][]int) {
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
		u := add(deploy.Step{Do: deploy.UpdateMachine{Config: &next, Former: m.Config, Instance: m.InstanceID}, Machine: m.ID}, last[m.Worker])
		ready := add(deploy.Step{Do: deploy.AwaitReady{Smoke: true}, Machine: m.ID}, []int{u})
		last[m.Worker], steps[m.Worker] = []int{ready}, append(steps[m.Worker], ready)
	}
	return p, steps
}
