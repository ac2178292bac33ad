package watch

import (
	"maps"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of a tracker: proxies are members of the cluster, and one that lies costs
// no more than this.
const (
	mostMachines = 1 << 16
	mostHolders  = 64 // of one machine, by name; further ones share one hold
)

// MostTTL is for how long one use may keep a machine awake.
const MostTTL = time.Hour

// Tracker knows which machines are in use, by whom, and until when. It is in memory
// alone: a worker that starts knows of no use, so each machine counts as used then.
//
// A use is counted first, and the machine's state read afterwards ([state.State]'s
// Machine, which reads what was recorded before). A stop looks at the uses in the
// transaction that records it. So either the stop sees the use, and does not begin,
// or who uses the machine sees that it is stopping, and starts it again.
type Tracker struct {
	now   func() time.Time
	began time.Time

	mu       sync.Mutex
	machines map[bourse.MachineID]*uses // guarded by mu
	full     hold                       // guarded by mu; of all machines together that found no place

	ended func(bourse.MachineID) // called when a use has ended before its time; may be nil
}

// uses are those of one machine.
type uses struct {
	holds map[string]hold // by who
	used  time.Time       // the latest use that has no hold, or no longer
	busy  int             // things in progress that end by themselves
}

// hold keeps a machine from being stopped until its time.
type hold struct {
	until    time.Time
	used     time.Time // when it was last renewed
	requests int       // in progress
}

// last returns when the machine was in use last, as far as the hold says: with
// requests in progress that is until the hold ends, unless it is renewed.
func (h hold) last(now time.Time) time.Time {
	if h.requests == 0 {
		return h.used
	}
	return earlier(now, h.until)
}

// NewTracker makes a tracker that knows of no use.
func NewTracker() *Tracker {
	return &Tracker{now: time.Now, began: time.Now(), machines: map[bourse.MachineID]*uses{}}
}

// Use counts a machine as in use by who: now, and for as long as ttl says, which
// replaces what it said before. Requests are those in progress there.
func (t *Tracker) Use(id bourse.MachineID, who string, requests int, ttl time.Duration) {
	if t.use(id, who, requests, ttl) {
		t.tell(id)
	}
}

func (t *Tracker) tell(id bourse.MachineID) {
	if t.ended != nil {
		t.ended(id)
	}
}

// use reports whether the hold ends sooner than it would have.
func (t *Tracker) use(id bourse.MachineID, who string, requests int, ttl time.Duration) bool {
	now := t.now()
	h := hold{until: now.Add(max(0, min(ttl, MostTTL))), used: now, requests: max(0, requests)}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.of(id, now)
	if u == nil {
		t.full = most(t.full, h)
		return false
	}
	if _, known := u.holds[who]; !known && len(u.holds) >= mostHolders {
		u.prune(now)
		if len(u.holds) >= mostHolders {
			who = ""
			h = most(u.holds[who], h)
		}
	}
	if u.holds == nil {
		u.holds = map[string]hold{}
	}
	sooner := h.until.Before(u.holds[who].until)
	u.holds[who] = h
	return sooner
}

// Touch counts a machine as in use now.
func (t *Tracker) Touch(id bourse.MachineID) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.of(id, now); u != nil {
		u.used = now
	} else {
		t.full = most(t.full, hold{until: now, used: now})
	}
}

// Drop ends the hold of who before its time; the machine was in use until now.
func (t *Tracker) Drop(id bourse.MachineID, who string) {
	now := t.now()
	defer t.tell(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.machines[id]
	if u == nil {
		return
	}
	if h, ok := u.holds[who]; ok && now.Before(h.until) {
		u.used = now
	} else if ok {
		u.used = later(u.used, h.last(now))
	}
	delete(u.holds, who)
}

// Begin counts a machine as in use until done is called, which may be repeated.
func (t *Tracker) Begin(id bourse.MachineID) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.of(id, t.now())
	if u == nil {
		t.full = most(t.full, hold{until: t.now().Add(MostTTL)})
		return func() {}
	}
	u.busy++
	return sync.OnceFunc(func() {
		defer t.tell(id)
		t.mu.Lock()
		defer t.mu.Unlock()
		u.busy--
		u.used = t.now()
	})
}

// Others returns the requests in progress that others than who hold a machine for.
func (t *Tracker) Others(id bourse.MachineID, who string) (n int) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.machines[id]
	if u == nil {
		return 0
	}
	for other, h := range u.holds {
		if other != who && now.Before(h.until) {
			n += h.requests
		}
	}
	return n
}

// Held returns until when a machine is held at most, and by whom; a time that is
// past when it is not held.
func (t *Tracker) Held(id bourse.MachineID) (until time.Time, by string) {
	seen := t.Uses(id)
	return seen.Until, seen.By
}

// Uses are what is known of a machine's uses.
type Uses struct {
	Last  time.Time // when it was in use last; never before the tracker was made
	Until time.Time // when the last hold ends; zero: there is none
	By    string    // who has that hold
	Busy  bool      // something is in progress that is not to be interrupted
}

// Uses returns what is known of a machine's uses now.
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

// Forget drops what is known of a machine that is not here any more.
func (t *Tracker) Forget(id bourse.MachineID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.machines, id)
}

// of returns the uses of a machine, which it makes; nil when there is no place.
func (t *Tracker) of(id bourse.MachineID, now time.Time) *uses {
	u := t.machines[id]
	if u != nil {
		return u
	}
	if len(t.machines) >= mostMachines {
		if now.Before(t.full.until) {
			return nil // and it has been tried
		}
		maps.DeleteFunc(t.machines, func(_ bourse.MachineID, u *uses) bool { return u.idleSince(now, MostTTL) })
		if len(t.machines) >= mostMachines {
			return nil
		}
	}
	u = &uses{}
	t.machines[id] = u
	return u
}

// prune drops holds that have ended; what they say of the last use stays.
func (u *uses) prune(now time.Time) {
	maps.DeleteFunc(u.holds, func(_ string, h hold) bool {
		if now.Before(h.until) {
			return false
		}
		u.used = later(u.used, h.last(now))
		return true
	})
}

// idleSince reports whether there was no use for a time.
func (u *uses) idleSince(now time.Time, d time.Duration) bool {
	u.prune(now)
	return u.busy == 0 && len(u.holds) == 0 && now.Sub(u.used) >= d
}

// most returns a hold that says no less than either.
func most(a, b hold) hold {
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
