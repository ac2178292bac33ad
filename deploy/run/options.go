package run

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Options configure a run. The zero value is useful.
type Options struct {
	// Owner describes where the run takes place and what it does, for clients that wait for its leases:
	// "ana@laptop, release v12". The name of its token is shown before it.
	Owner string
	// Release is the release whose status is recorded: running once the leases are held, then complete, failed
	// (everything was undone) or interrupted (not everything was). "": none.
	Release release.ID
	// Resumed tells that an earlier run has begun the release. If this run fails, the release is interrupted, even if
	// everything that this run did was undone.
	Resumed bool
	// Replan makes a new plan from the current state of the machines, once the run holds the leases of all machines in
	// the first plan's Seen. It is called again if it fails with unavailable or timeout, or if the new plan changes
	// machines whose leases are not held yet. If it is nil, the run fails with conflict if a machine was changed after
	// the plan was made.
	Replan func(context.Context) (deploy.Plan, error)
	// Events receives the events of the run, one at a time and in order. It must not wait for the run.
	Events func(Event)
	// Abandon ends the run at once when it is closed: requests in progress are canceled, and nothing more is undone.
	Abandon <-chan struct{}
	// KeepOnFailure turns off undoing when a step fails or the context ends.
	KeepOnFailure bool

	Wait      time.Duration // limit for a machine to become ready, to stop, or to run its command; default 5 min
	Watch     time.Duration // how long a ready machine is watched before the run ends or destroys what it replaces; 0: only during the run
	LeaseWait time.Duration // limit for waiting for other clients' leases; default 1 min, negative: none
	LeaseTTL  time.Duration // of the run's own leases, extended after a third of it; whole seconds, default 15 s
	Silence   time.Duration // how long requests are repeated that get no answer; default 1 min
}

func (o Options) withDefaults() Options {
	o.Wait = cmp.Or(o.Wait, 5*time.Minute)
	o.LeaseWait = cmp.Or(o.LeaseWait, time.Minute)
	o.LeaseTTL = max(cmp.Or(o.LeaseTTL, 15*time.Second).Truncate(time.Second), time.Second)
	o.Silence = cmp.Or(o.Silence, time.Minute)
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}
