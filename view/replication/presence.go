package replication

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
)

// presenceEvery is the interval at which the members are checked if no change is signaled.
const presenceEvery = time.Second

// presenceRest is the minimum time between checks while the members change.
const presenceRest = 50 * time.Millisecond

// absentAfter is the time after startup during which workers in the view that are not members do
// not count as absent yet, because the membership may not have found all members.
const absentAfter = 5 * time.Second

// aliveEvery is the interval at which the view is told again that a member is present.
const aliveEvery = 5 * time.Second

// presence reports to the view which members are present.
type presence struct {
	config *Config
	peers  *peers
	noted  map[bourse.WorkerID]time.Time // when each present member was last reported to the view
}

// watch reports the members' presence until ctx ends.
func (x *presence) watch(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for old := false; ; {
		changed := x.config.Changed()
		now := time.Now()
		x.note(now)
		if !old && now.Sub(began) >= absentAfter {
			old = true
			x.noteAbsent(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if !rest(ctx, presenceRest) { // when a large group starts, many members join at once
				return
			}
		case <-tick.C:
		}
	}
}

// rest waits for d. It returns false if ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	if d == 0 { // a timer would not be equivalent, see CONTRIBUTING
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// note reports to the view which members have joined and left since the last call and, every aliveEvery, which are
// still present.
func (x *presence) note(now time.Time) {
	here := map[bourse.WorkerID]bool{x.config.Self.ID: true}
	for _, m := range x.config.Members() {
		here[m.ID] = true
	}
	for id := range here {
		if at, ok := x.noted[id]; !ok || now.Sub(at) >= aliveEvery {
			x.config.View.SetPresence(id, true, now)
			x.noted[id] = now
		}
	}
	for id := range x.noted {
		if !here[id] {
			x.config.View.SetPresence(id, false, now)
			delete(x.noted, id)
			x.peers.answered(id) // earlier failures of the member no longer count, because it is present again
		}
	}
}

// noteAbsent reports to the view which workers in it are absent, including those that were lost
// before this server started.
func (x *presence) noteAbsent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.config.Pace.Timeout)
	defer cancel()
	workers, err := view.Ask(ctx, x.config.View, inventory.Workers())
	if err != nil && ctx.Err() == nil {
		x.config.Log.Warn("list workers to find absent ones failed", slog.Any("err", err))
	}
	for _, w := range workers {
		if _, ok := x.noted[w.ID]; !ok && w.HostStatus == machinesapi.HostOK {
			x.config.View.SetPresence(w.ID, false, w.HeardAt)
		}
	}
}
