package replication

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// sent contains the frames that a queue sends until it is empty, and how often it sends each.
type sent struct {
	whole    map[byte]int // by the transaction's first byte
	heads    map[wire.Position]int
	packets  int
	tooLarge int
}

func drain(t *testing.T, q *rumorQueue, limit int) sent {
	t.Helper()
	out := sent{whole: map[byte]int{}, heads: map[wire.Position]int{}}
	for {
		b := q.fill(newEnvelope(check), limit)
		if b == nil {
			return out
		}
		if out.packets++; out.packets > 10_000 {
			t.Fatal("the queue never becomes empty")
		}
		if len(b) > limit {
			out.tooLarge++
		}
		frames, err := openEnvelope(check, b)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[byte]bool{}
		for _, f := range frames {
			if f.kind == kindTransaction {
				if seen[f.body[0]] {
					t.Error("a packet contains a transaction twice")
				}
				seen[f.body[0]] = true
				out.whole[f.body[0]]++
			} else if p, ok := readPosition(f.body); ok {
				out.heads[p]++
			}
		}
	}
}

func newQueue(l Limits) *rumorQueue {
	return newRumorQueue(Timing{}.withDefaults(), l.withDefaults())
}

// TestRumorsAreSentOftenEnough checks that each transaction and position is sent exactly as
// often as configured.
func TestRumorsAreSentOftenEnough(t *testing.T) {
	q := newQueue(Limits{})
	for i := range 20 {
		q.add(position(fmt.Sprint("w", i), 1, 1), bytes.Repeat([]byte{byte(i)}, 300))
	}
	q.add(position("large", 1, 1), bytes.Repeat([]byte{99}, maxFullSends+1))
	q.announceHead(position("pulled", 1, 9))
	got := drain(t, q, 1300)
	for i := range byte(20) {
		if got.whole[i] != 4 || got.heads[position(fmt.Sprint("w", i), 1, 1)] != 8 {
			t.Errorf("transaction %d was sent %d times, and its position %d times", i, got.whole[i], got.heads[position(fmt.Sprint("w", i), 1, 1)])
		}
	}
	if got.whole[99] != 0 || got.heads[position("large", 1, 1)] != 12 || got.heads[position("pulled", 1, 9)] != 8 || got.tooLarge > 0 {
		t.Errorf("got %+v", got)
	}
	if rumors, n, heads := q.lengths(); rumors+n+heads != 0 {
		t.Errorf("%d rumors, %d bytes and %d announcements remain", rumors, n, heads)
	}
}

// TestQueueIsBounded checks that if there are too many transactions, the oldest ones are
// announced only by their positions, and only the newest position of each stream.
func TestQueueIsBounded(t *testing.T) {
	q := newQueue(Limits{QueueBytes: 3000, QueueStreams: 5})
	for i := range 100 {
		q.add(position(fmt.Sprint("w", i%10), 1, uint64(i+1)), bytes.Repeat([]byte{byte(i)}, 300))
		if _, n, heads := q.lengths(); n > 3000 || heads > 5 {
			t.Fatalf("%d bytes and %d announcements wait", n, heads)
		}
	}
	demoted, dropped := q.losses()
	got := drain(t, q, 1300)
	if got.whole[99] != 4 || got.whole[0] != 0 || demoted != 90 || dropped == 0 {
		t.Errorf("the newest was sent %d times, the oldest %d times; %d demoted, %d dropped", got.whole[99], got.whole[0], demoted, dropped)
	}
}

// TestQueueServesAnnouncements checks that positions are announced even if transactions fill
// every packet.
func TestQueueServesAnnouncements(t *testing.T) {
	q := newQueue(Limits{})
	p := position("quiet", 1, 1)
	q.announceHead(p)
	for i := range 20 {
		q.add(position("busy", 1, uint64(i+1)), bytes.Repeat([]byte{byte(i)}, 600))
		frames, _ := openEnvelope(check, q.fill(newEnvelope(check), 1300))
		for _, f := range frames {
			if got, ok := readPosition(f.body); f.kind == kindAnnounce && ok && got == p {
				return
			}
		}
	}
	t.Error("the position was never announced")
}

func TestRecentIsBounded(t *testing.T) {
	var r seenHashes
	for i := range uint64(10 * maxRecent) {
		r.add(i)
		if !r.has(i) || i > 0 && !r.has(i-1) {
			t.Fatalf("%d was discarded at once", i)
		}
	}
	if r.has(0) || len(r.now)+len(r.old) > 2*maxRecent {
		t.Errorf("%d hashes are remembered", len(r.now)+len(r.old))
	}
}

func TestWants(t *testing.T) {
	var w pullQueue
	w.init()
	now := time.Unix(1_800_000_000, 0)
	have := map[wire.Stream]uint64{}
	head := func(s wire.Stream) uint64 { return have[s] }
	p := position("w1", 1, 5)
	w.add(p, "w2", now.Add(time.Second))
	w.add(position("w1", 1, 4), "w3", now) // neither earlier nor further ahead
	if due, next := w.take(now, head); len(due) != 0 || !next.Equal(now.Add(time.Second)) {
		t.Fatalf("due before its time: %v, next %v", due, next)
	}
	now = now.Add(time.Second)
	due, _ := w.take(now, head)
	if x := due[p.Stream]; x.seq != 5 || len(x.from) != 2 {
		t.Fatalf("due: %v", due)
	}
	have[p.Stream] = 5
	w.add(position("w1", 1, 7), "w2", now) // announced after take
	w.pulled(due, now, head)
	due, _ = w.take(now, head)
	if due[p.Stream].seq != 7 {
		t.Fatalf("a position announced in the meantime is not due: %v", due)
	}
	tries := 1
	for ; w.length() > 0 && tries < 100; tries++ {
		now = now.Add(time.Minute)
		w.take(now, head)
	}
	if tries > maxTries+2 {
		t.Errorf("the want was tried %d times", tries)
	}
	for i := range 2 * maxWants {
		w.add(position(fmt.Sprint("w", i), 1, 1), "w2", now)
	}
	if w.length() > maxWants {
		t.Errorf("the queue contains %d streams", w.length())
	}
}

func TestPeersRest(t *testing.T) {
	p := newPeers()
	now := time.Unix(1_800_000_000, 0)
	p.pauseFor("w1", now, 7*time.Second)
	if p.callable("w1", now.Add(6*time.Second)) || !p.callable("w1", now.Add(8*time.Second)) || !p.callable("w2", now) {
		t.Error("a server that requested a pause of 7 s was paused for a different time")
	}
	for range 20 {
		p.failed("w2", now)
	}
	if p.callable("w2", now.Add(maxPause/2-1)) || !p.callable("w2", now.Add(2*maxPause)) {
		t.Error("a server that failed 20 times was paused for the wrong time")
	}
	callable, resting := p.shuffled([]bourse.Member{{ID: "w1"}, {ID: "w2"}, {ID: "w3"}}, now)
	if len(callable) != 1 || callable[0].ID != "w3" || len(resting) != 2 {
		t.Errorf("got %v and %v", callable, resting)
	}
	p.answered("w2")
	if !p.callable("w2", now) {
		t.Error("a server that responded is still paused")
	}
}

// TestRepairsBackOff checks that unsuccessful repairs are retried less and less often, and are
// listed.
func TestRepairsBackOff(t *testing.T) {
	var x repairs
	x.init()
	now := time.Unix(1_800_000_000, 0)
	tries := 0
	for range 3600 { // an hour, in steps of a second
		if x.due("w1/1", now) {
			tries++
			x.ended("w1/1", nil)
		}
		now = now.Add(time.Second)
	}
	if tries < 5 || tries > 20 {
		t.Errorf("tried %d times in an hour", tries)
	}
	if list := x.list(); len(list) != 1 || list[0].What != "w1/1" || list[0].Tries != tries {
		t.Errorf("told: %+v", list)
	}
	x.repaired("w1/1")
	if len(x.list()) != 0 || !x.due("w1/1", now) {
		t.Error("a finished repair is still listed")
	}
}

// TestSharedDiffsCountPerMember checks that a lasting difference from one member is repaired although this server
// agrees with all the others, and that a difference that disappears is not.
func TestSharedDiffsCountPerMember(t *testing.T) {
	var x repairs
	x.init()
	for i := range maxSharedDiffs {
		if got := x.sharedDiffer("w2", true, false); got != (i == maxSharedDiffs-1) {
			t.Errorf("comparison %d with w2: repair %v", i+1, got)
		}
		if x.sharedDiffer("w3", i%2 == 0, false) || x.sharedDiffer("w4", false, false) {
			t.Errorf("comparison %d with another member: repair", i+1)
		}
	}
	if !x.sharedDiffer("w4", true, true) {
		t.Error("equal heads: no repair")
	}
	for i := range 3 * maxRepairs {
		x.sharedDiffer(bourse.WorkerID(fmt.Sprint("x", i)), true, false)
	}
	if len(x.sharedDiffs) > maxRepairs {
		t.Errorf("%d members are remembered", len(x.sharedDiffs))
	}
}
