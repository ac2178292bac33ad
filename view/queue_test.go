package view

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestQueueAppliesInOrder drives the queue at random and applies what it returns. Once everything has been offered
// often enough, all transactions must have been applied in order, and the counters must be consistent.
func TestQueueAppliesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perStream = 12
		streams := []wire.Stream{{Site: "a", Epoch: 1}, {Site: "b", Epoch: 1}, {Site: "c", Epoch: 7}}
		applied := map[wire.Stream]uint64{}
		q := newIntake(rapid.IntRange(1, 4000).Draw(t, "max"))
		offer := func(s wire.Stream, seq uint64) {
			in := &incoming{Position: wire.Position{Stream: s, Seq: seq}, encoded: make([]byte, 100)}
			if q.admit(in, applied[s]) == Known && seq > applied[s] && !holds(&q, s, seq) {
				t.Fatalf("%v %d is reported as known, but was lost", s, seq)
			}
		}
		apply := func(n int) {
			items := q.take(n, 1<<20)
			gaps := map[wire.Stream]bool{}
			for _, in := range items {
				switch {
				case in.Seq == applied[in.Stream]+1:
					applied[in.Stream]++
				case in.Seq > applied[in.Stream]:
					gaps[in.Stream] = true
				}
			}
			for _, in := range items {
				q.settle(in.Stream, applied[in.Stream])
			}
			for s := range gaps {
				delete(q.tails, s)
			}
			q.finish()
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0:
				apply(rapid.IntRange(1, 5).Draw(t, "n"))
			case 1: // apply a snapshot
				s := rapid.SampledFrom(streams).Draw(t, "stream")
				applied[s] = max(applied[s], rapid.Uint64Range(1, perStream).Draw(t, "to"))
				q.settle(s, applied[s])
			case 2:
				items := q.take(3, 1<<20)
				q.requeue(items) // simulate a failed write
			default:
				offer(rapid.SampledFrom(streams).Draw(t, "stream"), rapid.Uint64Range(1, perStream).Draw(t, "seq"))
			}
		}
		for range perStream { // simulate anti-entropy
			for _, s := range streams {
				for seq := range uint64(perStream) {
					offer(s, seq+1)
					apply(100)
				}
			}
		}
		for _, s := range streams {
			if applied[s] != perStream {
				t.Errorf("stream %v was applied up to %d, want %d", s, applied[s], perStream)
			}
		}
		if q.bytes != 0 || q.ahead != 0 || len(q.items) != 0 || q.allWaiting() != 0 || len(q.tails) != 0 || q.done != q.issued {
			t.Errorf("counters after the end: %d bytes, %d waiting, tails %v, ticket %d of %d", q.bytes, q.ahead, q.tails, q.done, q.issued)
		}
	})
}

// holds reports whether a transaction is queued or waiting.
func holds(q *intake, s wire.Stream, seq uint64) bool {
	if q.waiting[s][seq] != nil {
		return true
	}
	for _, in := range q.items {
		if in.Stream == s && in.Seq == seq {
			return true
		}
	}
	return false
}

func TestFullQueueDropsTheOldest(t *testing.T) {
	q := newIntake(10 * (1000 + itemOverhead))
	for i := range uint64(25) {
		site := bourse.WorkerID(fmt.Sprint("w", i))
		if out := q.admit(&incoming{Position: wire.Position{Stream: wire.Stream{Site: site, Epoch: 1}, Seq: 1}, encoded: make([]byte, 1000)}, 0); out != Queued {
			t.Fatalf("transaction %d: outcome %d", i, out)
		}
		if want := i >= 5; q.overloaded() != want {
			t.Errorf("overloaded after %d of 10 transactions: %t, want %t", i+1, !want, want)
		}
	}
	if len(q.items) != 10 || q.dropped != 15 || q.items[0].Site != "w15" {
		t.Errorf("%d in the queue from %s on, %d dropped", len(q.items), q.items[0].Site, q.dropped)
	}
	if out := q.admit(&incoming{Position: wire.Position{Stream: wire.Stream{Site: "w0", Epoch: 1}, Seq: 1}}, 0); out != Queued {
		t.Errorf("a dropped transaction that arrives again: outcome %d", out)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	q := newIntake(1 << 20)
	for seq := range uint64(2 * maxGap) {
		q.admit(&incoming{Position: wire.Position{Stream: wire.Stream{Site: "w", Epoch: 1}, Seq: seq + 2}, encoded: make([]byte, 10)}, 0)
	}
	if n := q.waitingCount(wire.Stream{Site: "w", Epoch: 1}); n != maxGap-1 {
		t.Errorf("%d wait", n)
	}
	for i := range 100 {
		q.admit(&incoming{Position: wire.Position{Stream: wire.Stream{Site: bourse.WorkerID(fmt.Sprint("s", i)), Epoch: 1}, Seq: 2}, encoded: make([]byte, 1<<20)}, 0)
	}
	if q.ahead > maxWaitingBytes {
		t.Errorf("%d bytes wait", q.ahead)
	}
	q.dropWaiting()
	if q.allWaiting() != 0 || q.ahead != 0 {
		t.Errorf("still waiting: %d, %d bytes", q.allWaiting(), q.ahead)
	}
}

func TestRingSince(t *testing.T) {
	r := newRing(10 * (100 + itemOverhead))
	a, b := wire.Stream{Site: "a", Epoch: 1}, wire.Stream{Site: "b", Epoch: 1}
	push := func(s wire.Stream, seq uint64) {
		r.push(wire.Position{Stream: s, Seq: seq}, append(make([]byte, 99), byte(seq)))
	}
	for seq := range uint64(8) {
		push(a, seq+1)
	}
	for seq := range uint64(5) {
		push(b, seq+1)
	}
	check := func(p wire.Position, head uint64, maxBytes, n int, ok bool) {
		t.Helper()
		frames, got := r.since(p, head, maxBytes)
		if got != ok || len(frames) != n {
			t.Errorf("since %v: %d frames, %v, want %d, %v", p, len(frames), got, n, ok)
		}
		for i, f := range frames {
			if f[99] != byte(p.Seq)+1+byte(i) {
				t.Errorf("since %v: frame %d is transaction %d", p, i, f[99])
			}
		}
	}
	check(wire.Position{Stream: a, Seq: 3}, 8, 1<<20, 5, true)
	check(wire.Position{Stream: a, Seq: 2}, 8, 1<<20, 0, false) // it was evicted
	check(wire.Position{Stream: a, Seq: 8}, 8, 1<<20, 0, true)
	check(wire.Position{Stream: b, Seq: 0}, 5, 250, 2, true)
	check(wire.Position{Stream: b, Seq: 0}, 5, 1, 1, true)
	check(wire.Position{Stream: wire.Stream{Site: "c", Epoch: 1}, Seq: 0}, 0, 1, 0, true)
	check(wire.Position{Stream: wire.Stream{Site: "c", Epoch: 1}, Seq: 0}, 9, 1, 0, false)
	push(b, 9) // leaves a gap
	check(wire.Position{Stream: b, Seq: 4}, 9, 1<<20, 0, false)
	check(wire.Position{Stream: b, Seq: 8}, 9, 1<<20, 1, true)
	r.drop(a)
	r.drop(b)
	if r.bytes != 0 || len(r.order) != 0 || len(r.streams) != 0 {
		t.Errorf("an empty ring has %d bytes, order %v", r.bytes, r.order)
	}
}
