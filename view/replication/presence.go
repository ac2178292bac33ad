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

// presenceEvery is how often the members are looked at without a
// change.
const presenceEvery = time.Second

// presenceRest is the time between looks while the members change.
const presenceRest = 50 * time.Millisecond

// absentAfter is how long after the start a site whose rows we have may be
// missing from the members before it counts as lost: they have to be met first.
const absentAfter = 5 * time.Second

// aliveEvery is how often the view is updated on those that are still there.
const aliveEvery = 5 * time.Second

// presence keeps the view up to date on the members that are there.
type presence struct {
	config *Config
	peers  *peers
	noted  map[bourse.WorkerID]time.Time // when the view was last updated on those that are here
}

// watch does so until ctx ends.
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
			if !rest(ctx, presenceRest) { // in a large group that starts, many come at a time
				return
			}
		case <-tick.C:
		}
	}
}

// rest waits, and returns false when ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	if d == 0 { // without a timer: CONTRIBUTING says what virtual time does to one
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

// note passes to the view which members came and went since the last time, and
// now and then which are still there.
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
			x.peers.answered(id) // its failures are forgotten with it
		}
	}
}

// noteAbsent passes to the view which workers, that it knows from an earlier
// life of this server, are not here.
func (x *presence) noteAbsent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.config.Pace.Timeout)
	defer cancel()
	workers, err := view.Ask(ctx, x.config.View, inventory.Workers())
	if err != nil && ctx.Err() == nil {
		x.config.Log.Warn("the workers of an earlier life cannot be read", slog.Any("err", err))
	}
	for _, w := range workers {
		if _, ok := x.noted[w.ID]; !ok && w.HostStatus == machinesapi.HostOK {
			x.config.View.SetPresence(w.ID, false, w.HeardAt)
		}
	}
}
