package gossip

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// presenceEvery is how often the members are looked at without being told of
// a change.
const presenceEvery = time.Second

// presenceRest is the time between looks while the members change.
const presenceRest = 50 * time.Millisecond

// absentAfter is how long after the start a site whose rows we have may be
// missing from the members before it counts as lost: they have to be met first.
const absentAfter = 5 * time.Second

// aliveEvery is how often the view is told of those that are still there.
const aliveEvery = 5 * time.Second

// watchPresence tells the view who is heard from.
func (r *Replicator) watchPresence(ctx context.Context) {
	began := time.Now()
	told := map[bourse.WorkerID]time.Time{} // when the view was last told that they are here
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for old := false; ; {
		changed := r.config.Changed()
		now := time.Now()
		r.notePresence(told, now)
		if !old && now.Sub(began) >= absentAfter {
			old = true
			r.noteAbsent(ctx, told)
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

// rest waits, and gives false when ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	if d == 0 { // without a timer: CONTRIBUTING tells what virtual time does to one
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

// notePresence tells the view who came and who went since the last time, and
// now and then who is still there.
func (r *Replicator) notePresence(told map[bourse.WorkerID]time.Time, now time.Time) {
	here := map[bourse.WorkerID]bool{r.config.Self.ID: true}
	for _, m := range r.config.Members() {
		here[m.ID] = true
	}
	for id := range here {
		if at, ok := told[id]; !ok || now.Sub(at) >= aliveEvery {
			r.view.SetPresence(id, true, now)
			told[id] = now
		}
	}
	for id := range told {
		if !here[id] {
			r.view.SetPresence(id, false, now)
			delete(told, id)
			r.peers.answered(id) // whatever it did is forgotten with it
		}
	}
}

// noteAbsent tells the view of workers that it knows from an earlier life of
// this server and that are not here.
func (r *Replicator) noteAbsent(ctx context.Context, here map[bourse.WorkerID]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Pace.Timeout)
	defer cancel()
	workers, err := r.view.Workers(ctx)
	if err != nil && ctx.Err() == nil {
		r.config.Log.Warn("the workers of an earlier life cannot be read", slog.Any("err", err))
	}
	for _, w := range workers {
		if _, ok := here[w.ID]; !ok && w.HostStatus == view.HostOK {
			r.view.SetPresence(w.ID, false, w.HeardAt)
		}
	}
}
