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

// presenceInterval is the interval at which the list of members is checked if no change is
// signaled.
const presenceInterval = time.Second

// presencePause is the minimum time between two checks while the list of members is changing.
const presencePause = 50 * time.Millisecond

// absentDelay is the time after startup before this server reports workers that are not members as absent. Until then,
// the membership may not have found all members.
const absentDelay = 5 * time.Second

// aliveInterval is the interval at which a present member is reported to the view again.
const aliveInterval = 5 * time.Second

// presence tells the view which members are present.
type presence struct {
	config *Config
	peers  *peers
	noted  map[bourse.WorkerID]time.Time // when each present member was last reported to the view
}

// watch tells the view which members are present until ctx is done.
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
			if !sleep(ctx, presencePause) { // when a large group starts, many members join at the same time
				return
			}
		case <-tick.C:
		}
	}
}

// sleep waits for d. It returns false if ctx is done first.
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

// note tells the view which members have joined or left since the last call. Every aliveInterval, it also reports the
// members that are still present.
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
			x.peers.answered(id) // if the member returns, its earlier failures do not count
		}
	}
}

// noteAbsent tells the view which of its workers are absent, including those that were lost before
// this server started.
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
