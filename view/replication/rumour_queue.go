package replication

import (
	"sync"

	"github.com/bourse-dev/bourse/view/wire"
)

// rumour is a transaction on its way through the cluster.
type rumour struct {
	position wire.Position
	encoded  []byte
}

// announcement says that we have a stream up to a transaction.
type announcement struct {
	seq  uint64
	left int // how often it is still sent
}

// rumourQueue is what this member passes on: transactions, each whole a few
// times and after that by its position alone, a few times more. How often does
// not depend on the size of the cluster: a member that the one misses receives the
// other and pulls (Demers et al. 1987: with k copies each, rumours miss a part
// of about e to the minus k; here anti-entropy is the net below).
//
// It is bounded. What does not fit is announced by its position, too, the oldest
// first: under load members pull many transactions at once, which is cheaper.
type rumourQueue struct {
	whole, announce int // how often
	maxBytes        int // of whole transactions
	maxStreams      int // of announcements

	mu      sync.Mutex
	waiting [][]rumour // by how often each was sent; oldest first
	bytes   int
	heads   map[wire.Stream]announcement
	order   []wire.Stream // of heads, the next one first; may name some that are gone
	demoted uint64        // transactions that were not sent whole as often as they should
	dropped uint64        // announcements that were dropped for others
}

func newRumourQueue(p Pace, l Limits) *rumourQueue {
	return &rumourQueue{
		whole: p.Whole, announce: p.Announce, maxBytes: l.QueueBytes, maxStreams: l.QueueStreams,
		waiting: make([][]rumour, p.Whole), heads: map[wire.Stream]announcement{},
	}
}

// maxWhole is the largest transaction that is sent whole: it must fit into the
// packet of any network, among other news.
const maxWhole = 1200

// maxHeadsRoom is what of a packet is kept for announcements.
const maxHeadsRoom = 250

// add takes a transaction to be passed on. The bytes are the queue's.
func (q *rumourQueue) add(p wire.Position, encoded []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(encoded) > maxWhole || q.whole == 0 {
		q.announceLocked(p, q.announce+q.whole)
		return
	}
	q.waiting[0] = append(q.waiting[0], rumour{p, encoded})
	q.bytes += len(encoded)
	for i := len(q.waiting) - 1; i >= 0 && q.bytes > q.maxBytes; {
		if len(q.waiting[i]) == 0 {
			i--
			continue
		}
		r := q.waiting[i][0]
		q.waiting[i] = q.waiting[i][1:]
		q.retire(r, q.announce+q.whole-i)
		q.demoted++
	}
}

// retire sends only the position of r from now on.
func (q *rumourQueue) retire(r rumour, times int) {
	q.bytes -= len(r.encoded)
	q.announceLocked(r.position, times)
}

// announceHead sends that we have a stream up to p.
func (q *rumourQueue) announceHead(p wire.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.announceLocked(p, q.announce)
}

func (q *rumourQueue) announceLocked(p wire.Position, times int) {
	old, known := q.heads[p.Stream]
	if known && old.seq >= p.Seq || times <= 0 {
		return
	}
	q.heads[p.Stream] = announcement{p.Seq, times}
	if known {
		return
	}
	for len(q.heads) > q.maxStreams && len(q.order) > 0 {
		delete(q.heads, q.order[0])
		q.order = q.order[1:]
		q.dropped++
	}
	q.order = append(q.order, p.Stream)
}

// fill adds frames to an envelope of at most limit bytes: transactions first,
// those that were sent least before others. It returns nil when there is nothing
// to send.
func (q *rumourQueue) fill(envelope []byte, limit int) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	empty := len(envelope)
	room := limit
	if len(q.heads) > 0 {
		room -= min(maxHeadsRoom, limit/4) // announcements must not starve under load
	}
	if envelope = q.fillWhole(envelope, room); len(envelope) == empty {
		envelope = q.fillWhole(envelope, limit) // a large one
	}
	envelope = q.fillHeads(envelope, limit)
	if len(envelope) == empty {
		return nil
	}
	return envelope
}

func (q *rumourQueue) fillWhole(envelope []byte, limit int) []byte {
	sent := make([][]rumour, len(q.waiting))
	for i, list := range q.waiting {
		taken := 0
		for _, r := range list {
			if len(envelope)+frameSize(len(r.encoded)) > limit {
				break // not a smaller one behind it: order saves the others from gaps
			}
			envelope = appendFrame(envelope, kindTransaction, r.encoded)
			taken++
		}
		sent[i] = list[:taken:taken]
		q.waiting[i] = list[taken:]
	}
	for i, list := range sent {
		if i+1 < len(q.waiting) {
			q.waiting[i+1] = append(q.waiting[i+1], list...)
			continue
		}
		for _, r := range list {
			q.retire(r, q.announce)
		}
	}
	return envelope
}

func (q *rumourQueue) fillHeads(envelope []byte, limit int) []byte {
	var again []wire.Stream
	for len(q.order) > 0 {
		s := q.order[0]
		a, ok := q.heads[s]
		body := encodePosition(wire.Position{Stream: s, Seq: a.seq})
		if ok && len(envelope)+frameSize(len(body)) > limit {
			break
		}
		q.order = q.order[1:]
		if !ok {
			continue
		}
		envelope = appendFrame(envelope, kindAnnounce, body)
		if a.left--; a.left > 0 {
			q.heads[s] = a
			again = append(again, s)
		} else {
			delete(q.heads, s)
		}
	}
	q.order = append(q.order, again...)
	return envelope
}

// lengths returns how much waits.
func (q *rumourQueue) lengths() (rumours, bytes, heads int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range q.waiting {
		rumours += len(list)
	}
	return rumours, q.bytes, len(q.heads)
}

// losses returns what was not sent as often as it should.
func (q *rumourQueue) losses() (demoted, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.demoted, q.dropped
}

// recent remembers what was received lately, by its hash, so that the many copies
// of a rumour cost little. Two generations bound it.
type recent struct {
	mu       sync.Mutex
	now, old map[uint64]struct{}
}

const maxRecent = 4096

func (s *recent) has(h uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, a := s.now[h]
	_, b := s.old[h]
	return a || b
}

func (s *recent) add(h uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil || len(s.now) >= maxRecent {
		s.old, s.now = s.now, make(map[uint64]struct{}, maxRecent/8)
	}
	s.now[h] = struct{}{}
}
