package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// wantedStream is an entry of a pullQueue: a stream in which another member is ahead of this
// server.
type wantedStream struct {
	seq   uint64
	from  []bourse.WorkerID // members that have announced the stream, the most recent one last
	due   time.Time
	tries int
}

// Limits on the pullQueue: the number of streams, the number of members remembered for a stream, and the number of
// attempts to pull it. Entries that exceed a limit are dropped; a later comparison finds the transactions that are
// still missing.
const (
	maxWants   = 4096
	maxSources = 3
	maxTries   = 5
)

// pullQueue contains the streams that have to be pulled.
type pullQueue struct {
	wake chan struct{} // capacity 1; signals a new entry

	mu       sync.Mutex
	byStream map[wire.Stream]wantedStream
}

func (w *pullQueue) init() {
	w.wake = make(chan struct{}, 1)
	w.byStream = map[wire.Stream]wantedStream{}
}

// add records that the member from has p's stream, up to position p. from is "" if the member is
// unknown. The stream will be pulled at the time due. If the stream is already in the queue, its
// due time does not change.
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
		case w.wake <- struct{}{}: // the receiver needs the lock to read the queue, so it will see this entry
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

// take returns the streams that are due, and the time when the next stream is due (zero if the
// queue is empty). It removes streams that have reached the wanted position. It counts an attempt
// for each stream that it returns. Such a stream remains in the queue and is due again later. After
// maxTries attempts, take drops it when it is next due.
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

// pulled updates the queue after an attempt to pull the requested streams. A stream that has reached the wanted
// position is removed. If a later position has been announced since the attempt began, the stream remains in the queue
// and is due immediately.
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

// retryWant determines the time between attempts: after the n-th attempt, it is retryWant × 2^n.
const retryWant = 100 * time.Millisecond

func (w *pullQueue) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byStream)
}
