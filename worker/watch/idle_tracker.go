package watch

import (
	"maps"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits of a Tracker. They bound its memory even if a proxy sends faulty requests.
const (
	maxMachines = 1 << 16
	maxHolders  = 64 // holders per machine; further holders share one hold
)

// MaxTTL is the maximum time for which a single use can keep a machine awake.
const MaxTTL = time.Hour

// Tracker records which machines are in use, by whom, and until when. It keeps its data only in memory. When the worker
// starts, all machines therefore count as just used.
//
// A user first records its use and then reads the machine's state with [state.State.Machine]. The worker checks a
// machine's uses in the transaction that records a stop. Therefore, either the check finds the use and prevents the
// stop, or the user finds that the machine is stopping and starts it again.
type Tracker struct {
	now   func() time.Time
	began time.Time

	mu       sync.Mutex
	machines map[bourse.MachineID]*uses // guarded by mu
	full     hold                       // shared by all machines beyond maxMachines; guarded by mu

	ended func(bourse.MachineID) // called when a use ends early; may be nil
}

// uses records who is using a machine, and when the machine was last used.
type uses struct {
	holds map[string]hold // holds by holder
	used  time.Time       // time of the latest use without a hold, or with a hold that has ended
	busy  int             // number of uses in progress that were started with Begin
}

// hold prevents a machine from being stopped until a given time.
type hold struct {
	until    time.Time
	used     time.Time // when it was last renewed
	requests int       // number of requests in progress
}

// last returns the time when the holder last used the machine. While the holder has requests in progress, that time
// is now, but no later than the end of the hold.
func (h hold) last(now time.Time) time.Time {
	if h.requests == 0 {
		return h.used
	}
	return earlier(now, h.until)
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{now: time.Now, began: time.Now(), machines: map[bourse.MachineID]*uses{}}
}

// Use marks a machine as in use for the duration ttl from now. The new use replaces the holder's earlier use of the
// machine. requests is the number of requests that the holder has in progress.
func (t *Tracker) Use(id bourse.MachineID, holder string, requests int, ttl time.Duration) {
	if t.use(id, holder, requests, ttl) {
		t.notify(id)
	}
}

func (t *Tracker) notify(id bourse.MachineID) {
	if t.ended != nil {
		t.ended(id)
	}
}

// use records a use, and reports whether the hold now ends earlier than before.
func (t *Tracker) use(id bourse.MachineID, holder string, requests int, ttl time.Duration) bool {
	now := t.now()
	h := hold{until: now.Add(max(0, min(ttl, MaxTTL))), used: now, requests: max(0, requests)}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.of(id, now)
	if u == nil {
		t.full = maxOf(t.full, h)
		return false
	}
	if _, known := u.holds[holder]; !known && len(u.holds) >= maxHolders {
		u.prune(now)
		if len(u.holds) >= maxHolders {
			holder = ""
			h = maxOf(u.holds[holder], h)
		}
	}
	if u.holds == nil {
		u.holds = map[string]hold{}
	}
	sooner := h.until.Before(u.holds[holder].until)
	u.holds[holder] = h
	return sooner
}

// Touch records that a machine is being used now.
func (t *Tracker) Touch(id bourse.MachineID) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.of(id, now); u != nil {
		u.used = now
	} else {
		t.full = maxOf(t.full, hold{until: now, used: now})
	}
}

// Drop ends the holder's hold. If the hold had not already ended, the machine counts as used until now.
func (t *Tracker) Drop(id bourse.MachineID, holder string) {
	now := t.now()
	defer t.notify(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.machines[id]
	if u == nil {
		return
	}
	if h, ok := u.holds[holder]; ok && now.Before(h.until) {
		u.used = now
	} else if ok {
		u.used = later(u.used, h.last(now))
	}
	delete(u.holds, holder)
}

// Begin marks a machine as in use until done is called. Further calls to done have no effect.
func (t *Tracker) Begin(id bourse.MachineID) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.of(id, t.now())
	if u == nil {
		t.full = maxOf(t.full, hold{until: t.now().Add(MaxTTL)})
		return func() {}
	}
	u.busy++
	return sync.OnceFunc(func() {
		defer t.notify(id)
		t.mu.Lock()
		defer t.mu.Unlock()
		u.busy--
		u.used = t.now()
	})
}

// Others returns the total number of requests that holders other than holder have in progress.
func (t *Tracker) Others(id bourse.MachineID, holder string) (n int) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.machines[id]
	if u == nil {
		return 0
	}
	for other, h := range u.holds {
		if other != holder && now.Before(h.until) {
			n += h.requests
		}
	}
	return n
}

// Held returns the time at which the last of the machine's holds ends, and the holder's name. If the machine is not
// held, the time is zero or in the past.
func (t *Tracker) Held(id bourse.MachineID) (until time.Time, by string) {
	seen := t.Uses(id)
	return seen.Until, seen.By
}

// Uses is a summary of a machine's uses.
type Uses struct {
	Last  time.Time // time of the last use, or when the tracker was created if that is later
	Until time.Time // end of the last hold; zero if there is none
	By    string    // the holder whose hold ends last
	Busy  bool      // whether a use that was started with Begin is in progress
}

// Uses returns a summary of the machine's uses.
func (t *Tracker) Uses(id bourse.MachineID) Uses {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Uses{Last: later(t.began, t.full.last(now)), Until: t.full.until}
	u := t.machines[id]
	if u == nil {
		return out
	}
	out.Busy, out.Last = u.busy > 0, later(out.Last, u.used)
	for who, h := range u.holds {
		out.Last = later(out.Last, h.last(now))
		if h.until.After(out.Until) {
			out.Until, out.By = h.until, who
		}
	}
	return out
}

// Forget removes the uses of a machine that no longer exists.
func (t *Tracker) Forget(id bourse.MachineID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.machines, id)
}

// of returns the uses of a machine, adding the machine if necessary. It returns nil if
// there are too many machines.
func (t *Tracker) of(id bourse.MachineID, now time.Time) *uses {
	u := t.machines[id]
	if u != nil {
		return u
	}
	if len(t.machines) >= maxMachines {
		if now.Before(t.full.until) {
			return nil // unused machines were removed only recently, so do not try again yet
		}
		maps.DeleteFunc(t.machines, func(_ bourse.MachineID, u *uses) bool { return u.idleSince(now, MaxTTL) })
		if len(t.machines) >= maxMachines {
			return nil
		}
	}
	u = &uses{}
	t.machines[id] = u
	return u
}

// prune removes the holds that have ended, and records when the machine was last used.
func (u *uses) prune(now time.Time) {
	maps.DeleteFunc(u.holds, func(_ string, h hold) bool {
		if now.Before(h.until) {
			return false
		}
		u.used = later(u.used, h.last(now))
		return true
	})
}

// idleSince reports whether nobody is using the machine and nobody has used it for at least the duration d.
func (u *uses) idleSince(now time.Time, d time.Duration) bool {
	u.prune(now)
	return u.busy == 0 && len(u.holds) == 0 && now.Sub(u.used) >= d
}

// maxOf returns a hold that covers both a and b: it has the later times, and the larger number of requests.
func maxOf(a, b hold) hold {
	return hold{until: later(a.until, b.until), used: later(a.used, b.used), requests: max(a.requests, b.requests)}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
