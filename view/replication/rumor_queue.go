package replication

import (
	"sync"

	"github.com/bourse-dev/bourse/view/wire"
)

// rumor is a transaction that is being sent to other members.
type rumor struct {
	position wire.Position
	encoded  []byte
}

// announcement tells other members that this member has a stream up to the transaction seq.
type announcement struct {
	seq       uint64
	remaining int // remaining number of times to send it
}

// rumorQueue contains the transactions and positions that this member sends to others. It sends
// each transaction in full a few times, and after that, it sends only the transaction's position a
// few more times. These numbers do not depend on the size of the cluster, because a member that
// misses the transaction is likely to receive its position and pull it. (Demers et al. 1987: if
// each rumor is sent k times, a fraction of about e^-k of the members miss it. Anti-entropy finds
// the rest.)
//
// The queue is bounded. If it is full, the transactions that have been sent most often are no
// longer sent in full; only their positions are announced. Under load, this is cheaper anyway,
// because members pull many transactions at once.
type rumorQueue struct {
	fullSends, announcements int // number of times that each transaction is sent in full, and number of times that its position is sent afterward
	maxBytes                 int // maximum total size, in bytes, of the transactions that wait to be sent in full
	maxStreams               int // maximum number of announcements

	mu        sync.Mutex
	waiting   [][]rumor // rumors by the number of times that they have been sent; each list contains the oldest one first
	bytes     int
	heads     map[wire.Stream]announcement
	order     []wire.Stream // keys of heads in sending order; may include keys that are no longer in heads
	shortened uint64        // number of transactions that were sent in full less often than configured
	dropped   uint64        // number of announcements dropped in favor of later ones
}

func newRumorQueue(p Timing, l Limits) *rumorQueue {
	return &rumorQueue{
		fullSends: p.FullSends, announcements: p.Announcements, maxBytes: l.QueueBytes, maxStreams: l.QueueStreams,
		waiting: make([][]rumor, p.FullSends), heads: map[wire.Stream]announcement{},
	}
}

// maxFullSends is the maximum size, in bytes, of a transaction that is sent in full. On any
// network, such a transaction must fit into a packet together with the packet's other data.
const maxFullSends = 1200

// maxHeadsRoom is the maximum space, in bytes, that is reserved in a packet for announcements.
const maxHeadsRoom = 250

// add queues a transaction. The queue owns encoded from then on.
func (q *rumorQueue) add(p wire.Position, encoded []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(encoded) > maxFullSends || q.fullSends == 0 {
		q.announceLocked(p, q.announcements+q.fullSends)
		return
	}
	q.waiting[0] = append(q.waiting[0], rumor{p, encoded})
	q.bytes += len(encoded)
	for i := len(q.waiting) - 1; i >= 0 && q.bytes > q.maxBytes; {
		if len(q.waiting[i]) == 0 {
			i--
			continue
		}
		r := q.waiting[i][0]
		q.waiting[i] = q.waiting[i][1:]
		q.stopSending(r, q.announcements+q.fullSends-i)
		q.shortened++
	}
}

// stopSending is called once r no longer has to be sent in full. It queues r's position to be
// announced the given number of times.
func (q *rumorQueue) stopSending(r rumor, times int) {
	q.bytes -= len(r.encoded)
	q.announceLocked(r.position, times)
}

// announceHead queues an announcement that this member has a stream up to the position p.
func (q *rumorQueue) announceHead(p wire.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.announceLocked(p, q.announcements)
}

func (q *rumorQueue) announceLocked(p wire.Position, times int) {
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

// fill appends rumors to an envelope, up to a total size of limit bytes. It first appends whole
// transactions, starting with those that have been sent least often, and then announcements. It
// returns nil if there is nothing to send.
func (q *rumorQueue) fill(envelope []byte, limit int) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	empty := len(envelope)
	room := limit
	if len(q.heads) > 0 {
		room -= min(maxHeadsRoom, limit/4) // reserve space, so that announcements are sent even under load
	}
	if envelope = q.fillFull(envelope, room); len(envelope) == empty {
		envelope = q.fillFull(envelope, limit) // a large transaction may need the reserved space
	}
	envelope = q.fillHeads(envelope, limit)
	if len(envelope) == empty {
		return nil
	}
	return envelope
}

func (q *rumorQueue) fillFull(envelope []byte, limit int) []byte {
	sent := make([][]rumor, len(q.waiting))
	for i, list := range q.waiting {
		taken := 0
		for _, r := range list {
			if len(envelope)+frameSize(len(r.encoded)) > limit {
				break // don't skip it in favor of a smaller one: transactions that are sent in order do not cause gaps for their recipients
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
			q.stopSending(r, q.announcements)
		}
	}
	return envelope
}

func (q *rumorQueue) fillHeads(envelope []byte, limit int) []byte {
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
		if a.remaining--; a.remaining > 0 {
			q.heads[s] = a
			again = append(again, s)
		} else {
			delete(q.heads, s)
		}
	}
	q.order = append(q.order, again...)
	return envelope
}

// lengths returns the number of waiting rumors, their total size in bytes, and the number of
// waiting announcements.
func (q *rumorQueue) lengths() (rumors, bytes, heads int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range q.waiting {
		rumors += len(list)
	}
	return rumors, q.bytes, len(q.heads)
}

// losses returns two numbers: transactions that were sent in full less often than configured, and
// announcements that were dropped.
func (q *rumorQueue) losses() (demoted, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shortened, q.dropped
}

// seenHashes remembers the hashes of recently received transactions, so that further copies of a
// rumor can be recognized cheaply. It retains only two generations of hashes, which limits its
// size.
type seenHashes struct {
	mu       sync.Mutex
	now, old map[uint64]struct{}
}

const maxRecent = 4096

func (s *seenHashes) has(h uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, a := s.now[h]
	_, b := s.old[h]
	return a || b
}

func (s *seenHashes) add(h uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil || len(s.now) >= maxRecent {
		s.old, s.now = s.now, make(map[uint64]struct{}, maxRecent/8)
	}
	s.now[h] = struct{}{}
}
