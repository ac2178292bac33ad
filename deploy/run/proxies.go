package run

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// changedBefore returns the machines that the preceding steps created or changed.
func (o operation) changedBefore() []bourse.MachineID {
	found := map[bourse.MachineID]bool{}
	for _, i := range newGraph(o.plan).preceding(o.i) {
		s := &o.plan.Steps[i]
		if id := o.journal.machine(i); id != "" && (s.Changes() || deploy.Is[deploy.MakeMachine](s.Do)) {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// proxiesTimeout limits how long a step waits for proxies.
const proxiesTimeout = 10 * time.Second

// awaitProxies waits until every proxy has received the machines' current state, as published by their workers. Proxies
// that take longer than proxiesTimeout are recorded as silent, but the step does not fail.
func (o operation) awaitProxies(ctx context.Context, machines []bourse.MachineID) error {
	limited, cancel := context.WithTimeout(ctx, proxiesTimeout)
	defer cancel()
	behind, err := o.proxiesBehind(limited, machines)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
	case limited.Err() != nil || bourse.CodeOf(err) == bourse.CodeForbidden || bourse.CodeOf(err) == bourse.CodeUnauthorized:
		behind = []string{"all: " + bourse.MessageOf(err)}
	default:
		return err
	}
	o.journal.addSilent(behind)
	return nil
}

// proxiesBehind waits until all proxies have received the machines' current state. If ctx is done first, it returns the
// proxies that have not received it.
func (o operation) proxiesBehind(ctx context.Context, machines []bourse.MachineID) ([]string, error) {
	health, err := o.health(ctx)
	if err != nil || !slices.ContainsFunc(health.Members, isProxy) {
		return nil, err
	}
	workers, err := o.published(ctx, machines)
	if err != nil {
		return nil, err
	}
	return o.awaitStreams(ctx, workers)
}

func isProxy(m machinesapi.MemberHealth) bool { return m.Role == bourse.RoleProxy }

func (o operation) health(ctx context.Context) (health machinesapi.ViewHealth, err error) {
	err = o.repeat(ctx, "", requestTimeout, func(ctx context.Context, _ bool) error {
		health, err = o.api.Health(ctx)
		return err
	})
	return health, err
}

// published waits until the API server's copy of the view contains the machines' current state. It returns the
// machines' workers.
func (o operation) published(ctx context.Context, machines []bourse.MachineID) (map[bourse.WorkerID]bool, error) {
	workers := map[bourse.WorkerID]bool{}
	for _, id := range machines {
		err := o.news.poll(ctx, id, func() (bool, error) {
			if o.news.unavailable() {
				return false, bourse.Errorf(bourse.CodeForbidden, "the token does not permit reading which changes they have received")
			}
			m, err := o.readMachine(ctx, id)
			gone := bourse.CodeOf(err) == bourse.CodeNotFound
			if err != nil && !gone {
				return false, err
			}
			row, there, known := o.news.row(id)
			if gone || m.State == bourse.StateDestroyed {
				return known && !there, nil
			}
			workers[m.Worker] = true
			return there && row.Instance == m.InstanceID && row.Cordoned == m.Cordoned && row.Starts == m.Starts && row.State == m.State, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return workers, nil
}

// awaitStreams waits until every proxy has received each worker's stream up to the furthest position that any member
// had when awaitStreams was called. If ctx is done first, it returns the proxies that are still behind.
func (o operation) awaitStreams(ctx context.Context, workers map[bourse.WorkerID]bool) (behind []string, err error) {
	var want map[bourse.WorkerID]position
	for wait := 25 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		health, err := o.health(ctx)
		if err != nil {
			return behind, err
		}
		if want == nil {
			want = furthest(&health, workers)
		}
		if behind = lagging(&health, want); len(behind) == 0 {
			return nil, nil
		}
		if err := sleep(ctx, wait); err != nil { // poll, because no API call waits for this
			return behind, nil //nolint:nilerr // the caller checks its own context
		}
	}
}

// position is a position in the stream of changes that a worker publishes.
type position struct{ epoch, seq uint64 }

func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.seq < q.seq
}

// furthest returns, for each worker's stream, the furthest position that any member has
// received.
func furthest(h *machinesapi.ViewHealth, workers map[bourse.WorkerID]bool) map[bourse.WorkerID]position {
	out := map[bourse.WorkerID]position{}
	for i := range h.Members {
		for _, head := range h.Members[i].Heads {
			if at := (position{head.Epoch, head.Seq}); workers[head.Site] && out[head.Site].before(at) {
				out[head.Site] = at
			}
		}
	}
	return out
}

// lagging returns the proxies that do not respond, and those that have not received the streams up to the given
// positions. It ignores proxies that are known to be down, because they do not serve requests.
func lagging(h *machinesapi.ViewHealth, want map[bourse.WorkerID]position) []string {
	var out []string
	for i := range h.Members {
		m := &h.Members[i]
		if !isProxy(*m) || m.State == machinesapi.ViewDown {
			continue
		}
		at := map[bourse.WorkerID]position{}
		for _, head := range m.Heads {
			if p := (position{head.Epoch, head.Seq}); at[head.Site].before(p) {
				at[head.Site] = p
			}
		}
		for site, p := range want {
			if !m.Reachable || at[site].before(p) {
				out = append(out, string(m.ID))
				break
			}
		}
	}
	return out
}
