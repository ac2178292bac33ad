package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// wantedStream describes a stream in which another member is ahead of this server.
type wantedStream struct {
	seq   uint64
	from  []bourse.WorkerID // members that have announced it, the most recent last
	due   time.Time
	tries int
}

// Limits of wants. If a limit is exceeded, wants or sources are dropped, and a comparison will
// find the difference.
const (
	maxWants   = 4096
	maxSources = 3
	maxTries   = 5
)

// pullQueue contains the streams that have to be pulled.
type pullQueue struct {
	wake chan struct{} // capacity 1; signals a new want

	mu       sync.Mutex
	byStream map[wire.Stream]wantedStream
}

func (w *pullQueue) init() {
	w.wake = make(chan struct{}, 1)
	w.byStream = map[wire.Stream]wantedStream{}
}

// add records that a member has a stream up to p. The member's ID is "" if it is unknown. If there
// is already a want for the stream, its due time does not change.
func (w *pullQueue) add(p wire.Position, from bourse.WorkerID, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, known := w.byStream[p.Stream]
	if !known {
		if len(w.byStream) >= maxWants {
			return
		}
		old.due = due
		select {
		case w.wake <- struct{}{}: // the receiver needs the lock to read the wants, so it will see this one
		default:
		}
	}
	old.seq = max(old.seq, p.Seq)
	if from != "" && !slices.Contains(old.from, from) {
		old.from = append(old.from, from)
		old.from = old.from[max(0, len(old.from)-maxSources):]
	}
	w.byStream[p.Stream] = old
}

// take returns the unsatisfied wants that are due, and the time when the next want is due (zero if
// there are none). For each returned want, it counts an attempt. The want is due again later, and
// is dropped after maxTries attempts.
func (w *pullQueue) take(now time.Time, head func(wire.Stream) uint64) (due map[wire.Stream]wantedStream, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due = map[wire.Stream]wantedStream{}
	for s, x := range w.byStream {
		if head(s) >= x.seq {
			delete(w.byStream, s)
			continue
		}
		if !x.due.After(now) {
			if x.tries++; x.tries > maxTries {
				delete(w.byStream, s)
				continue
			}
			due[s] = x
			x.due = now.Add(retryWant << x.tries)
			w.byStream[s] = x
		}
		if next.IsZero() || x.due.Before(next) {
			next = x.due
		}
	}
	return due, next
}

// pulled updates the requested wants after an attempt to pull them. If a stream has reached the wanted position, its
// want is removed. If a later position has been announced since, the want is instead due at once.
func (w *pullQueue) pulled(requested map[wire.Stream]wantedStream, now time.Time, head func(wire.Stream) uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, before := range requested {
		x, known := w.byStream[s]
		have := head(s)
		switch {
		case !known || have < before.seq:
		case have >= x.seq:
			delete(w.byStream, s)
		default:
			x.tries, x.due = 0, now
			w.byStream[s] = x
		}
	}
}

// retryWant is the base of the time between attempts. The time after the n-th
// attempt is retryWant × 2^n.
const retryWant = 100 * time.Millisecond

func (w *pullQueue) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byStream)
}
