package view

import (
	"maps"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// incoming is another site's transaction that is not in the file yet.
type incoming struct {
	wire.Position
	at      int64
	rows    []schema.Entry
	bad     []refusal
	encoded []byte
	by      *wire.Author
	ticket  uint64 // number of the transaction in the order in which transactions were queued
}

// refusal is a row that cannot be applied.
type refusal struct {
	wire.Stamp
	table, key string
	reason     error
	raw        []byte // nil if it is too large to retain
	retry      int64  // when to retry, in nanoseconds since 1970; 0 means never
}

// Limits on transactions that wait for earlier ones. Transactions rarely arrive more than a few
// positions early. A transaction that exceeds a limit is dropped, and anti-entropy delivers it
// again.
const (
	maxGap          = 128      // how far a transaction may be ahead of its stream's last transaction in the file
	maxWaitingBytes = 16 << 20 // limit for all streams together, in bytes
	itemOverhead    = 128      // estimated memory in bytes for a queue entry, in addition to its encoding
)

// intake holds the transactions that Apply has accepted and that are not in the file yet. It is guarded by the
// view's lock.
//
// Transactions are queued in an order in which they can be applied. If the queue is full, the
// oldest transaction is dropped. Its stream then has a gap, so the writer drops the stream's later
// transactions when it reaches them.
type intake struct {
	items   []*incoming
	bytes   int
	max     int
	dropped uint64

	tails   map[wire.Stream]uint64 // each stream's last queued position, if that is after its last position in the file
	waiting map[wire.Stream]map[uint64]*incoming
	ahead   int                          // bytes in waiting
	authors map[wire.Stream]*wire.Author // authors of streams that are not in the file yet

	issued, done uint64 // the last ticket issued; all tickets up to done have left the queue
	flushes      []flush
}

// flush is a pending call to Flush. The call returns once all transactions with this ticket or a lower one have left
// the queue.
type flush struct {
	ticket uint64
	done   chan struct{}
}

func newIntake(maxBytes int) intake {
	return intake{max: maxBytes, tails: map[wire.Stream]uint64{}, waiting: map[wire.Stream]map[uint64]*incoming{}, authors: map[wire.Stream]*wire.Author{}}
}

// admit queues a transaction, or retains it until the transactions before it have arrived. applied is the sequence
// number of the stream's last transaction in the file.
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
	return Queued
}

// has reports whether a transaction is in the file, queued, or waiting for earlier ones.
func (q *intake) has(p wire.Position, applied uint64) bool {
	q.resume(p.Stream, applied)
	return p.Seq <= max(applied, q.tails[p.Stream]) || q.waiting[p.Stream][p.Seq] != nil
}

// resume queues waiting transactions whose predecessors have arrived, or that did not fit into the
// queue before.
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
	size := len(in.encoded) + itemOverhead
	if in.Seq > tail+maxGap || q.ahead+size > maxWaitingBytes {
		return
	}
	if q.waiting[in.Stream] == nil {
		q.waiting[in.Stream] = map[uint64]*incoming{}
	}
	q.waiting[in.Stream][in.Seq] = in
	q.ahead += size
}

// follow queues a stream's waiting transactions, as long as each directly follows the last queued
// one. It stops when the queue is full, because a transaction must not displace its own
// predecessors.
func (q *intake) follow(s wire.Stream) {
	for {
		next := q.waiting[s][q.tails[s]+1]
		if next == nil || len(q.items) > 0 && q.bytes+len(next.encoded)+itemOverhead > q.max {
			return
		}
		q.push(q.takeWaiting(s, next.Seq))
	}
}

func (q *intake) takeWaiting(s wire.Stream, seq uint64) *incoming {
	in := q.waiting[s][seq]
	if in == nil {
		return nil
	}
	q.ahead -= len(in.encoded) + itemOverhead
	if delete(q.waiting[s], seq); len(q.waiting[s]) == 0 {
		delete(q.waiting, s)
	}
	return in
}

func (q *intake) push(in *incoming) {
	q.issued++
	in.ticket = q.issued
	q.items = append(q.items, in)
	q.bytes += len(in.encoded) + itemOverhead
	q.tails[in.Stream] = in.Seq
	for q.bytes > q.max && len(q.items) > 1 {
		oldest := q.pop()
		q.dropped++
		if tail, ok := q.tails[oldest.Stream]; ok {
			q.tails[oldest.Stream] = min(tail, oldest.Seq-1) // accept the dropped transaction when it arrives again
		}
	}
}

// overloaded reports whether more than half of the queue is occupied.
func (q *intake) overloaded() bool { return q.bytes > q.max/2 }

func (q *intake) pop() *incoming {
	in := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	q.bytes -= len(in.encoded) + itemOverhead
	return in
}

// take removes the transactions for the next commit from the queue and returns them.
func (q *intake) take(maxItems, maxBytes int) []*incoming {
	var out []*incoming
	for n := 0; len(q.items) > 0 && len(out) < maxItems && n < maxBytes; {
		in := q.pop()
		n += len(in.encoded)
		out = append(out, in)
	}
	return out
}

// requeue puts transactions that could not be written back at the front of the queue.
func (q *intake) requeue(items []*incoming) {
	for _, in := range items {
		q.bytes += len(in.encoded) + itemOverhead
	}
	q.items = append(items, q.items...)
}

// settle updates the queue after a stream's transactions have been written to the file. applied is the last one's
// sequence number.
func (q *intake) settle(s wire.Stream, applied uint64) {
	if q.tails[s] <= applied {
		delete(q.tails, s)
	}
	for seq := range q.waiting[s] {
		if seq <= applied {
			q.takeWaiting(s, seq)
		}
	}
	if applied > 0 {
		delete(q.authors, s)
	}
	q.resume(s, applied)
}

// finish ends the calls to Flush whose transactions have all left the queue.
func (q *intake) finish() {
	if q.done = q.issued; len(q.items) > 0 {
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

// reset empties the queue after the file has been lost.
func (q *intake) reset() {
	q.items, q.bytes, q.ahead = nil, 0, 0
	clear(q.tails)
	clear(q.waiting)
	clear(q.authors)
	q.finish()
}

// dropWaiting drops the transactions whose predecessors have not arrived.
func (q *intake) dropWaiting() {
	clear(q.waiting)
	q.ahead = 0
	maps.DeleteFunc(q.authors, func(s wire.Stream, _ *wire.Author) bool { return q.tails[s] == 0 })
}

// waitingCount returns the number of a stream's transactions that wait for earlier ones.
func (q *intake) waitingCount(s wire.Stream) int { return len(q.waiting[s]) }

func (q *intake) allWaiting() (n int) {
	for _, w := range q.waiting {
		n += len(w)
	}
	return n
}
