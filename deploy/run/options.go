package run

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Options configures a run. The zero value is valid.
type Options struct {
	// Owner describes where the run executes and what it does, such as "ana@laptop, release v12". Clients that wait for
	// the run's leases see this text, preceded by the name of the run's token.
	Owner string
	// Release is the release whose status the run records: running once the leases are held, and then complete, failed
	// (everything was undone) or interrupted (not everything was undone). If Release is "", no status is recorded.
	Release release.ID
	// Resumed must be set if an earlier run began the release. If this run then fails, the release's status is
	// interrupted, even if the run has undone all of its own changes.
	Resumed bool
	// Replan makes a new plan from the current state of the machines. The run calls Replan once it holds the leases
	// of all machines in the first plan's Seen. It calls Replan again if Replan fails with unavailable or timeout, or
	// if the new plan is based on machines whose leases the run does not hold yet. Without Replan, the run fails with
	// conflict if a machine was changed after the plan was made.
	Replan func(context.Context) (deploy.Plan, error)
	// Events is called for each of the run's events, one at a time and in order. It must not wait for the run.
	Events func(Event)
	// Abandon ends the run immediately when it is closed: requests in progress are canceled, and no further changes
	// are undone.
	Abandon <-chan struct{}
	// KeepOnFailure disables undoing steps after a step fails or the context is done.
	KeepOnFailure bool

	Wait      time.Duration // time limit for a machine to become ready, to stop, or to run its command; default 5 min
	Watch     time.Duration // minimum time that a ready machine is watched before the run ends or destroys the machine that it replaces; default 0
	LeaseWait time.Duration // time limit for waiting for other clients' leases; default 1 min; negative means do not wait
	LeaseTTL  time.Duration // duration of the run's leases, in whole seconds; each lease is extended after a third of this time; default 15 s
	RetryFor  time.Duration // how long to repeat unanswered requests; default 1 min
}

func (o Options) withDefaults() Options {
	o.Wait = cmp.Or(o.Wait, 5*time.Minute)
	o.LeaseWait = cmp.Or(o.LeaseWait, time.Minute)
	o.LeaseTTL = max(cmp.Or(o.LeaseTTL, 15*time.Second).Truncate(time.Second), time.Second)
	o.RetryFor = cmp.Or(o.RetryFor, time.Minute)
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}
