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

// Receive processes a packet of rumors from another member.
func (r *Replicator) Receive(message []byte) {
	r.count.rumorBytesIn.Add(uint64(len(message)))
	frames, err := openEnvelope(r.check, message)
	if err != nil {
		r.refusals.add(err, "")
		return
	}
	r.take(frames)
}

// Next returns the next packet of rumors to send, or nil if there are no rumors.
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
// this member has recently received before.
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
		default: // skip frames that belong to other exchanges, or that a later release may add
		}
	}
}

// sender returns the ID of the sender that an envelope names, or "" if it does not name one.
func sender(frames []frame) bourse.WorkerID {
	for _, f := range frames {
		if f.kind == kindFrom && bourse.WorkerID(f.body).Validate() == nil {
			return bourse.WorkerID(f.body)
		}
	}
	return ""
}

// takePushed processes an envelope that was sent directly to this member. Unlike take, it passes
// every transaction to the view, even one that was received before, because the sender waits until
// the view contains it. takePushed returns the transactions' streams.
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
		default: // skip frames that belong to other exchanges, or that a later release may add
		}
	}
	return touched
}

// applied contains the position of a transaction that was passed to the view. mayChange reports
// whether the view may accept the transaction later, because its signature could not be verified
// yet.
type applied struct {
	wire.Position
	mayChange bool
}

// takeTransaction passes a transaction to the view and, if it is new, queues it for other members.
// It returns CodeInvalid if the transaction is malformed, and CodeForbidden if it is not signed by
// its site. Other errors come from the view.
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
	case view.Gap: // forward it, because other members may not have the gap; the view retains it for some time
		r.count.gaps.Add(1)
		r.queue.add(p, encoded)
		r.wants.add(p, from, time.Now().Add(r.config.Timing.PullDelay))
	case view.Unverified: // do not forward it, because anyone may have created it
		r.count.gaps.Add(1)
		r.wants.add(p, from, time.Now().Add(r.config.Timing.PullDelay))
		return applied{p, true}, nil
	case view.FromFuture:
		r.requestRenewal(p)
	}
	return applied{Position: p}, nil
}

// takeAnnouncement schedules a pull if the announced position is ahead of ours. It ignores
// announcements about this server's own stream, because they may be false, and starting a new epoch
// is expensive. If other members are really ahead, a comparison will detect that.
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
