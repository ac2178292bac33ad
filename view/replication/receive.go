package replication

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// rumorSeed is the seed for hashes of received transactions. The hashes are never sent to other
// members.
var rumorSeed = maphash.MakeSeed()

// Receive processes a packet of rumors.
func (r *Replicator) Receive(message []byte) {
	r.count.rumorBytesIn.Add(uint64(len(message)))
	frames, err := openEnvelope(r.check, message)
	if err != nil {
		r.refusals.add(err, "")
		return
	}
	r.take(frames)
}

// Next returns a packet of rumors to send, or nil if there are none.
func (r *Replicator) Next(overhead, limit int) [][]byte {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	envelope = r.queue.fill(envelope, limit-overhead)
	if envelope == nil {
		return nil
	}
	r.count.rumorBytesOut.Add(uint64(len(envelope)))
	return [][]byte{envelope}
}

// take processes the transactions and announcements in an envelope. It ignores transactions that
// it has received before.
func (r *Replicator) take(frames []frame) {
	from := sender(frames)
	for _, f := range frames {
		switch f.kind {
		case kindTransaction:
			h := maphash.Bytes(rumorSeed, f.body)
			if r.seen.has(h) {
				r.count.duplicates.Add(1)
				continue
			}
			p, err := r.takeTransaction(from, f.body)
			if code := bourse.CodeOf(err); err == nil && !p.mayChange || err != nil && (code == bourse.CodeInvalid || code == bourse.CodeForbidden) {
				r.seen.add(h)
			}
		case kindAnnounce:
			r.takeAnnouncement(from, f.body)
		default: // skip frames that a later release may add and frames of other exchanges
		}
	}
}

// sender returns the sender named in an envelope, or "" if there is none.
func sender(frames []frame) bourse.WorkerID {
	for _, f := range frames {
		if f.kind == kindFrom && bourse.WorkerID(f.body).Validate() == nil {
			return bourse.WorkerID(f.body)
		}
	}
	return ""
}

// takePushed processes an envelope that was sent only to this member. Unlike take, it passes every
// transaction to the view, even one that it has received before, because the sender waits until
// the view has it. It returns the transactions' streams.
func (r *Replicator) takePushed(frames []frame) []wire.Stream {
	from := sender(frames)
	var touched []wire.Stream
	for _, f := range frames {
		switch f.kind {
		case kindTransaction:
			if p, err := r.takeTransaction(from, f.body); err == nil && !slices.Contains(touched, p.Stream) {
				touched = append(touched, p.Stream)
			}
		case kindAnnounce:
			r.takeAnnouncement(from, f.body)
		default: // skip frames that a later release may add and frames of other exchanges
		}
	}
	return touched
}

// applied is the position of a transaction that was passed to the view. If mayChange is true,
// the view may treat the transaction differently when it is received again.
type applied struct {
	wire.Position
	mayChange bool
}

// takeTransaction applies a transaction and, if it is new, queues it for other members. If
// the transaction is malformed or not signed by its site, takeTransaction counts it and
// returns CodeInvalid or CodeForbidden. Other errors come from the view.
func (r *Replicator) takeTransaction(from bourse.WorkerID, body []byte) (applied, error) {
	encoded := slices.Clone(body) // clone, because body is part of the packet's buffer
	verdict, err := r.view.Apply(encoded)
	if err != nil {
		r.refusals.add(err, from)
		return applied{}, err
	}
	p := verdict.Position
	switch verdict.Outcome {
	case view.Queued:
		r.count.taken.Add(1)
		r.queue.add(p, encoded)
	case view.Known:
		r.count.duplicates.Add(1)
	case view.Gap: // forward it: the view retains it for some time, and other members may not have the gap
		r.count.gaps.Add(1)
		r.queue.add(p, encoded)
		r.wants.add(p, from, time.Now().Add(r.config.Timing.PullDelay))
	case view.Unverified: // do not forward it: anyone may have created it
		r.count.gaps.Add(1)
		r.wants.add(p, from, time.Now().Add(r.config.Timing.PullDelay))
		return applied{p, true}, nil
	case view.FromFuture:
		r.requestRenewal(p)
	}
	return applied{Position: p}, nil
}

// takeAnnouncement schedules a pull if the announced position is ahead of our own. It ignores
// announcements of this server's own stream: they may be false, and starting a new epoch is
// expensive. If other members are really ahead, a comparison will detect that.
func (r *Replicator) takeAnnouncement(from bourse.WorkerID, body []byte) {
	r.count.announced.Add(1)
	p, ok := readPosition(body)
	if !ok {
		r.refusals.add(refusedShape, from)
		return
	}
	own := p.Site == r.config.Self.ID && p.Epoch >= r.view.Self().Epoch
	if !own && p.Seq > r.view.Head(p.Stream) {
		r.wants.add(p, from, time.Now().Add(r.config.Timing.PullDelay))
	}
}
