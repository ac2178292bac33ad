package run

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/release"
)

// Options say how a plan is carried out. The zero value is useful.
type Options struct {
	// Owner describes where the deploy runs and what it does, to those who wait for its leases:
	// "ana@laptop, release v12". The name of its token is shown before it.
	Owner string
	// Release is the record that is kept up to date: running once the leases are held, then complete,
	// failed (all is as it was before) or interrupted (something is not). "": none.
	Release release.ID
	// Resumed says that an earlier run has begun the release: when this run does not complete it, the release
	// is interrupted, even though everything that this run did was undone.
	Resumed bool
	// Replan makes a new plan from the current state of the machines, once the run holds the leases of all
	// machines that the first plan knows. It is called again if it fails with unavailable or timeout, or if the
	// new plan changes machines whose leases are not held yet. If it is nil, the run fails with conflict
	// when a machine was changed after the plan was made.
	Replan func(context.Context) (deploy.Plan, error)
	// Events receives the news, one at a time, in order; it must not wait for the run.
	Events func(Event)
	// Abandon ends the run at once when it is closed: requests in progress are given up
	// and nothing is undone any more. It is for a second interrupt.
	Abandon <-chan struct{}
	// KeepOnFailure leaves what was done when a step fails or the context ends.
	KeepOnFailure bool

	Parallel  int           // steps in progress at once; default 16
	Wait      time.Duration // for a machine to become ready, to stop, or to run its command, where the step does not say; default 5 min
	Smoke     time.Duration // for how long a machine without checks has to run before it counts as ready, where its step says Smoke; default 2 s
	Watch     time.Duration // for how long a machine is watched after it became ready, before the run ends or destroys what it replaces; 0: only while the run goes on
	LeaseWait time.Duration // for leases that others hold; default 1 min, negative: not at all
	LeaseTTL  time.Duration // of our own, which is extended at a third of it; whole seconds, default 15 s
	Silence   time.Duration // how long requests are repeated that get no answer; default 1 min
	Proxies   time.Duration // for a proxy to hear of what was done, before it is left behind; default 10 s
}

func (o Options) withDefaults() Options {
	o.Parallel = cmp.Or(o.Parallel, 16)
	o.Wait = cmp.Or(o.Wait, 5*time.Minute)
	o.Smoke = cmp.Or(o.Smoke, 2*time.Second)
	o.LeaseWait = cmp.Or(o.LeaseWait, time.Minute)
	o.LeaseTTL = max(cmp.Or(o.LeaseTTL, 15*time.Second).Truncate(time.Second), time.Second)
	o.Silence = cmp.Or(o.Silence, time.Minute)
	o.Proxies = cmp.Or(o.Proxies, 10*time.Second)
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}
