package deploy

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// builder numbers the steps of a plan.
type builder struct{ deploy.Plan }

func (b *builder) add(s deploy.Step, after ...int) int {
	s.ID, s.After = len(b.Steps), after
	b.Steps = append(b.Steps, s)
	return s.ID
}

// to returns a machine's config with another version.
func to(c *bourse.Config, version string) *bourse.Config {
	out := *c
	out.Env = map[string]string{machineVariable: version}
	return &out
}

// rolling updates one machine after the other.
func (h *house) rolling(app bourse.AppName, version string, after ...int) deploy.Plan {
	h.Helper()
	b := &builder{deploy.Plan{App: app}}
	for _, m := range h.machines(app) {
		if m.Config.Env[machineVariable] != version {
			after = []int{b.update(m.ID, m.InstanceID, m.Config, to(m.Config, version), after...)}
		}
	}
	return b.Plan
}

func (b *builder) update(id bourse.MachineID, instance bourse.InstanceID, former, next *bourse.Config, after ...int) int {
	u := b.add(deploy.Step{Do: deploy.UpdateMachine, Machine: id, Config: next, Former: former, Instance: instance}, after...)
	return b.add(deploy.Step{Do: deploy.AwaitReady, Machine: id, Smoke: true}, u)
}

// canary tries the version on one machine more, which goes again.
func (h *house) canary(app bourse.AppName, version string) deploy.Plan {
	h.Helper()
	list := h.machines(app)
	b := &builder{deploy.Plan{App: app}}
	c := b.add(deploy.Step{Do: deploy.MakeMachine, In: "gru", Config: to(list[0].Config, version)})
	ready := b.add(deploy.Step{Do: deploy.AwaitReady, Of: &c, Smoke: true}, c)
	cordon := b.add(deploy.Step{Do: deploy.CordonMachine, Of: &c}, ready)
	know := b.add(deploy.Step{Do: deploy.AwaitProxies}, cordon)
	stop := b.add(deploy.Step{Do: deploy.StopMachine, Of: &c}, know)
	last := b.add(deploy.Step{Do: deploy.DestroyMachine, Of: &c}, stop)
	for _, m := range list {
		last = b.update(m.ID, m.InstanceID, m.Config, to(m.Config, version), last)
	}
	return b.Plan
}

// bluegreen puts a machine of the version beside each, and takes the former away.
func (h *house) bluegreen(app bourse.AppName, version string) deploy.Plan {
	h.Helper()
	b := &builder{deploy.Plan{App: app, Reserve: true}}
	var greens, ready, serve, cordon, stop []int
	list := h.machines(app)
	for _, m := range list {
		g := b.add(deploy.Step{Do: deploy.MakeMachine, In: "gru", Config: to(m.Config, version), Hidden: true})
		greens = append(greens, g)
		ready = append(ready, b.add(deploy.Step{Do: deploy.AwaitReady, Of: &g, Smoke: true}, g))
	}
	for i := range greens {
		serve = append(serve, b.add(deploy.Step{Do: deploy.UncordonMachine, Of: &greens[i]}, ready...))
	}
	know := b.add(deploy.Step{Do: deploy.AwaitProxies}, serve...)
	for _, m := range list {
		cordon = append(cordon, b.add(deploy.Step{Do: deploy.CordonMachine, Machine: m.ID}, know))
	}
	know = b.add(deploy.Step{Do: deploy.AwaitProxies}, cordon...)
	for _, m := range list {
		stop = append(stop, b.add(deploy.Step{Do: deploy.StopMachine, Machine: m.ID}, know))
	}
	for _, m := range list {
		b.add(deploy.Step{Do: deploy.DestroyMachine, Machine: m.ID}, stop...)
	}
	return b.Plan
}
