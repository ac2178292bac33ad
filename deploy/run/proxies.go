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

// changedBefore returns the machines that steps before this one have changed, however
// far before.
func (r *runner) changedBefore(i int) []bourse.MachineID {
	seen := make([]bool, i+1)
	found := map[bourse.MachineID]bool{}
	var visit func(int)
	visit = func(j int) {
		for _, before := range r.plan.Steps[j].After {
			if seen[before] {
				continue
			}
			seen[before] = true
			if s := &r.plan.Steps[before]; touches(s) || s.Do == deploy.MakeMachine {
				if id := r.machineOf(before); id != "" {
					found[id] = true
				}
			}
			visit(before)
		}
	}
	visit(i)
	return slices.Sorted(maps.Keys(found))
}

// hearing waits for proxies.
type hearing struct{ *runner }

// awaitProxies waits until every proxy has heard of what the machines are like now: of
// the transaction with which their workers published it. A proxy that does not answer is waited for as
// long as r.opts.Proxies, and named.
func (r *runner) awaitProxies(ctx context.Context, i int, machines []bourse.MachineID) error {
	limited, cancel := context.WithTimeout(ctx, r.opts.Proxies)
	defer cancel()
	behind, err := hearing{r}.deaf(limited, i, machines)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
	case limited.Err() != nil || bourse.CodeOf(err) == bourse.CodeForbidden || bourse.CodeOf(err) == bourse.CodeUnauthorized:
		behind = []string{"all: " + bourse.MessageOf(err)}
	default:
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range behind {
		r.silent[name] = true
	}
	return nil
}

// deaf waits until all proxies have heard, and returns those that have not when ctx ends.
func (r hearing) deaf(ctx context.Context, i int, machines []bourse.MachineID) ([]string, error) {
	health, err := r.health(ctx, i)
	if err != nil || !slices.ContainsFunc(health.Members, isProxy) {
		return nil, err
	}
	workers, err := r.published(ctx, i, machines)
	if err != nil {
		return nil, err
	}
	return r.heard(ctx, i, workers)
}

func isProxy(m machinesapi.MemberHealth) bool { return m.Role == bourse.RoleProxy }

func (r hearing) health(ctx context.Context, i int) (health machinesapi.ViewHealth, err error) {
	err = r.again(ctx, try{step: i, limit: quick}, func(ctx context.Context, _ bool) error {
		health, err = r.api.Health(ctx)
		return err
	})
	return health, err
}

// published waits until the API's copy of the view has the machines as their workers
// have them, and returns those workers.
func (r hearing) published(ctx context.Context, i int, machines []bourse.MachineID) (map[bourse.WorkerID]bool, error) {
	workers := map[bourse.WorkerID]bool{}
	for _, id := range machines {
		err := r.news.until(ctx, id, func() (bool, error) {
			if r.news.never() {
				return false, bourse.Errorf(bourse.CodeForbidden, "the token may not read what they have heard")
			}
			m, err := r.look(ctx, i, id)
			gone := bourse.CodeOf(err) == bourse.CodeNotFound
			if err != nil && !gone {
				return false, err
			}
			row, there, known := r.news.row(id)
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

// heard waits until every proxy is as far in the workers' streams as anyone was at first, and returns
// those that are not when ctx ends.
func (r hearing) heard(ctx context.Context, i int, workers map[bourse.WorkerID]bool) (behind []string, err error) {
	var want map[bourse.WorkerID]position
	for wait := 25 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		health, err := r.health(ctx, i)
		if err != nil {
			return behind, err
		}
		if want == nil {
			want = furthest(&health, workers)
		}
		if behind = lagging(&health, want); len(behind) == 0 {
			return nil, nil
		}
		if err := rest(ctx, wait); err != nil { // no call waits for it
			return behind, nil //nolint:nilerr // it is an error where the caller's context has ended
		}
	}
}

// position is a place in a site's stream.
type position struct{ epoch, seq uint64 }

func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.seq < q.seq
}

// furthest returns how far anyone is in the streams of the workers.
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

// lagging returns the proxies that are not as far, or do not say. One that is known to
// be down serves no one.
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
