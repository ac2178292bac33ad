package view

import (
	"maps"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// incoming is a transaction of another site on its way into the file.
type incoming struct {
	wire.Position
	at      int64
	rows    []schema.Entry
	bad     []refusal
	encoded []byte
	by      *wire.Author
	ticket  uint64 // grows in the order of the queue
}

// refusal is a row that cannot be taken in.
type refusal struct {
	wire.Stamp
	table, key string
	reason     error
	raw        []byte // nil when it is too large to keep
	retry      int64  // nanoseconds since 1970; 0: never
}

// What waits for transactions before it: out of order means late by a few, and
// anti-entropy brings what is not kept.
const (
	maxAhead        = 128      // beyond the last one of its stream
	maxWaitingBytes = 16 << 20 // of all streams
	overhead        = 128      // bytes that an entry of a queue takes beside its encoding
)

// intake is what has been taken by Apply and is not in the file yet. Its owner
// holds the view's lock.
//
// The queue has transactions in an order in which they can be applied. When it
// is full its oldest goes; what follows that one in its stream finds a gap when
// its turn comes and goes too.
type intake struct {
	items   []*incoming
	bytes   int
	max     int
	dropped uint64

	tails   map[wire.Stream]uint64 // the last queued of a stream, while it is beyond the file's
	waiting map[wire.Stream]map[uint64]*incoming
	ahead   int                          // bytes waiting
	authors map[wire.Stream]*wire.Author // of streams that the file does not have yet

	given, done uint64 // tickets: the last given, and all up to it have left the queue
	flushes     []flush
}

// flush waits for a ticket.
type flush struct {
	ticket uint64
	done   chan struct{}
}

func newIntake(maxBytes int) intake {
	return intake{max: maxBytes, tails: map[wire.Stream]uint64{}, waiting: map[wire.Stream]map[uint64]*incoming{}, authors: map[wire.Stream]*wire.Author{}}
}

// admit puts a transaction where it belongs, given the last one of its stream
// that is in the file.
func (q *intake) admit(in *incoming, applied uint64) Outcome {
	if q.has(in.Position, applied) {
		return Known
	}
	if applied == 0 && q.authors[in.Stream] == nil {
		q.authors[in.Stream] = in.by
	}
	if tail := max(applied, q.tails[in.Stream]); in.Seq > tail+1 {
		q.wait(in, tail)
		return Gap
	}
	q.push(in)
	q.follow(in.Stream)
	return Taken
}

// has reports whether a transaction is in the file or on its way.
func (q *intake) has(p wire.Position, applied uint64) bool {
	q.resume(p.Stream, applied)
	return p.Seq <= max(applied, q.tails[p.Stream]) || q.waiting[p.Stream][p.Seq] != nil
}

// resume queues what waits for nothing any more: there was no space for it, or
// a snapshot brought what it waited for.
func (q *intake) resume(s wire.Stream, applied uint64) {
	tail := max(applied, q.tails[s])
	if q.waiting[s][tail+1] == nil {
		return
	}
	q.tails[s] = tail
	if q.follow(s); q.tails[s] <= applied {
		delete(q.tails, s)
	}
}

func (q *intake) wait(in *incoming, tail uint64) {
	size := len(in.encoded) + overhead
	if in.Seq > tail+maxAhead || q.ahead+size > maxWaitingBytes {
		return
	}
	if q.waiting[in.Stream] == nil {
		q.waiting[in.Stream] = map[uint64]*incoming{}
	}
	q.waiting[in.Stream][in.Seq] = in
	q.ahead += size
}

// follow queues what waited for the present tail of a stream, as far as there
// is space: it must not drive out what it follows.
func (q *intake) follow(s wire.Stream) {
	for {
		next := q.waiting[s][q.tails[s]+1]
		if next == nil || len(q.items) > 0 && q.bytes+len(next.encoded)+overhead > q.max {
			return
		}
		q.push(q.unwait(s, next.Seq))
	}
}

func (q *intake) unwait(s wire.Stream, seq uint64) *incoming {
	in := q.waiting[s][seq]
	if in == nil {
		return nil
	}
	q.ahead -= len(in.encoded) + overhead
	if delete(q.waiting[s], seq); len(q.waiting[s]) == 0 {
		delete(q.waiting, s)
	}
	return in
}

func (q *intake) push(in *incoming) {
	q.given++
	in.ticket = q.given
	q.items = append(q.items, in)
	q.bytes += len(in.encoded) + overhead
	q.tails[in.Stream] = in.Seq
	for q.bytes > q.max && len(q.items) > 1 {
		oldest := q.pop()
		q.dropped++
		if tail, ok := q.tails[oldest.Stream]; ok {
			q.tails[oldest.Stream] = min(tail, oldest.Seq-1) // so that it is taken when it comes again
		}
	}
}

func (q *intake) pop() *incoming {
	in := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	q.bytes -= len(in.encoded) + overhead
	return in
}

// take returns the next transactions to apply together.
func (q *intake) take(maxItems, maxBytes int) []*incoming {
	var out []*incoming
	for n := 0; len(q.items) > 0 && len(out) < maxItems && n < maxBytes; {
		in := q.pop()
		n += len(in.encoded)
		out = append(out, in)
	}
	return out
}

// back puts what could not be written at the front again.
func (q *intake) back(items []*incoming) {
	for _, in := range items {
		q.bytes += len(in.encoded) + overhead
	}
	q.items = append(items, q.items...)
}

// settle tidies up when the file has a stream up to applied.
func (q *intake) settle(s wire.Stream, applied uint64) {
	if q.tails[s] <= applied {
		delete(q.tails, s)
	}
	for seq := range q.waiting[s] {
		if seq <= applied {
			q.unwait(s, seq)
		}
	}
	if applied > 0 {
		delete(q.authors, s)
	}
	q.resume(s, applied)
}

// finish releases those who wait for tickets that have left the queue.
func (q *intake) finish() {
	if q.done = q.given; len(q.items) > 0 {
		q.done = q.items[0].ticket - 1
	}
	kept := q.flushes[:0]
	for _, f := range q.flushes {
		if f.ticket <= q.done {
			close(f.done)
		} else {
			kept = append(kept, f)
		}
	}
	q.flushes = kept
}

// forget empties the queue: the file that it was meant for is gone.
func (q *intake) forget() {
	q.items, q.bytes, q.ahead = nil, 0, 0
	clear(q.tails)
	clear(q.waiting)
	clear(q.authors)
	q.finish()
}

// forgetWaiting drops those whose predecessors did not come.
func (q *intake) forgetWaiting() {
	clear(q.waiting)
	q.ahead = 0
	maps.DeleteFunc(q.authors, func(s wire.Stream, _ *wire.Author) bool { return q.tails[s] == 0 })
}

// waits counts the transactions of a stream that wait for others.
func (q *intake) waits(s wire.Stream) int { return len(q.waiting[s]) }

func (q *intake) allWaiting() (n int) {
	for _, w := range q.waiting {
		n += len(w)
	}
	return n
}
