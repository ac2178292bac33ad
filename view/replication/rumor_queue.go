package replication

import (
	"sync"

	"github.com/bourse-dev/bourse/view/wire"
)

// rumor is a transaction to be forwarded.
type rumor struct {
	position wire.Position
	encoded  []byte
}

// announcement tells other members that this one has a stream up to the transaction seq.
type announcement struct {
	seq       uint64
	remaining int // remaining number of times to send it
}

// rumorQueue contains the transactions and positions that this member forwards. Each transaction
// is sent in full a few times, and after that only its position is sent a few more times. These
// numbers do not depend on the size of the cluster, because a member that misses the transaction
// is likely to receive its position and pull it. (Demers et al. 1987: if each rumor is sent k
// times, a fraction of about e^-k of the members miss it; anti-entropy finds the rest.)
//
// The queue is bounded. If it is full, the oldest transactions are no longer sent in full, but
// only announced by their positions. Under load this is cheaper anyway, because members pull many
// transactions at once.
type rumorQueue struct {
	fullSends, announcements int // how often to send each transaction in full, and then how often to send its position
	maxBytes                 int // limit on the transactions that wait to be sent in full, in bytes
	maxStreams               int // maximum number of announcements

	mu        sync.Mutex
	waiting   [][]rumor // rumors by how often they have been sent, each list oldest first
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

// maxFullSends is the size of the largest transaction that is sent whole, in bytes. On any
// network, such a transaction must fit into a packet together with the other data.
const maxFullSends = 1200

// maxHeadsRoom is the maximum number of bytes that are reserved for announcements in a packet.
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

// stopSending stops sending r in full, and queues its position to be announced the given number of
// times.
func (q *rumorQueue) stopSending(r rumor, times int) {
	q.bytes -= len(r.encoded)
	q.announceLocked(r.position, times)
}

// announceHead queues an announcement that this member has a stream up to position p.
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

// fill appends frames to an envelope of at most limit bytes. It first appends whole
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
				break // don't skip it for a smaller one: transactions that are sent in order cause no gaps for their recipients
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

// lengths returns the number of waiting rumors, their size in bytes, and the number of waiting
// announcements.
func (q *rumorQueue) lengths() (rumors, bytes, heads int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range q.waiting {
		rumors += len(list)
	}
	return rumors, q.bytes, len(q.heads)
}

// losses returns the numbers of transactions that were sent in full less often than configured,
// and of dropped announcements.
func (q *rumorQueue) losses() (demoted, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shortened, q.dropped
}

// seenHashes remembers the hashes of recently received transactions, so that processing the many
// copies of a rumor is cheap. Its size is bounded, because it retains only two generations.
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
