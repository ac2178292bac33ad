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

// presenceInterval is the interval at which the members are checked if no change is signaled.
const presenceInterval = time.Second

// presencePause is the minimum time between checks while the members change.
const presencePause = 50 * time.Millisecond

// absentDelay is the time after startup during which workers in the view that are not members do
// not count as absent yet, because the membership may not have found all members.
const absentDelay = 5 * time.Second

// aliveInterval is the interval at which a member's presence is reported to the view again.
const aliveInterval = 5 * time.Second

// presence reports to the view which members are present.
type presence struct {
	config *Config
	peers  *peers
	noted  map[bourse.WorkerID]time.Time // when each present member was last reported to the view
}

// watch reports the members' presence until ctx ends.
func (x *presence) watch(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(presenceInterval)
	defer tick.Stop()
	for old := false; ; {
		changed := x.config.Changed()
		now := time.Now()
		x.note(now)
		if !old && now.Sub(began) >= absentDelay {
			old = true
			x.noteAbsent(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if !sleep(ctx, presencePause) { // when a large group starts, many members join at once
				return
			}
		case <-tick.C:
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
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

// note reports to the view which members have joined and left since the last call and, every aliveInterval, which are
// still present.
func (x *presence) note(now time.Time) {
	here := map[bourse.WorkerID]bool{x.config.Self.ID: true}
	for _, m := range x.config.Members() {
		here[m.ID] = true
	}
	for id := range here {
		if at, ok := x.noted[id]; !ok || now.Sub(at) >= aliveInterval {
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
	ctx, cancel := context.WithTimeout(ctx, x.config.Timing.Timeout)
	defer cancel()
	workers, err := view.Query(ctx, x.config.View, inventory.Workers())
	if err != nil && ctx.Err() == nil {
		x.config.Log.Warn("list absent workers failed", slog.Any("err", err))
	}
	for _, w := range workers {
		if _, ok := x.noted[w.ID]; !ok && w.HostStatus == machinesapi.HostOK {
			x.config.View.SetPresence(w.ID, false, w.HeardAt)
		}
	}
}
