package replication

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// rumourSeed makes our hashes of what was received: they never leave the process.
var rumourSeed = maphash.MakeSeed()

// Receive takes a packet of rumours.
func (r *Replicator) Receive(message []byte) {
	r.count.rumourBytesIn.Add(uint64(len(message)))
	frames, err := openEnvelope(r.check, message)
	if err != nil {
		r.refusals.add(err, "")
		return
	}
	r.take(frames)
}

// Next returns one packet of rumours.
func (r *Replicator) Next(overhead, limit int) [][]byte {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	envelope = r.queue.fill(envelope, limit-overhead)
	if envelope == nil {
		return nil
	}
	r.count.rumourBytesOut.Add(uint64(len(envelope)))
	return [][]byte{envelope}
}

// take takes in the transactions and announcements of an envelope, but for
// those transactions that were received already.
func (r *Replicator) take(frames []frame) {
	from := sender(frames)
	for _, f := range frames {
		switch f.kind {
		case kindTransaction:
			h := maphash.Bytes(rumourSeed, f.body)
			if r.seen.has(h) {
				r.count.duplicates.Add(1)
				continue
			}
			p, err := r.takeTransaction(from, f.body)
			if code := bourse.CodeOf(err); err == nil && !p.again || err != nil && (code == bourse.CodeInvalid || code == bourse.CodeForbidden) {
				r.seen.add(h)
			}
		case kindAnnounce:
			r.takeAnnouncement(from, f.body)
		default: // of a later release, or of another conversation
		}
	}
}

// sender returns the sender that an envelope names, "" when it names none.
func sender(frames []frame) bourse.WorkerID {
	for _, f := range frames {
		if f.kind == kindFrom && bourse.WorkerID(f.body).Validate() == nil {
			return bourse.WorkerID(f.body)
		}
	}
	return ""
}

// takePushed is take for what was sent to us alone: nothing of it is taken for
// known before the view has said so. It returns the streams that there were
// transactions of.
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
		default: // of a later release, or of another conversation
		}
	}
	return touched
}

// placed is the position of a transaction, and whether it would be taken otherwise
// if it came again.
type placed struct {
	wire.Position
	again bool
}

// takeTransaction takes one in and passes it on when it is new. CodeInvalid and
// CodeForbidden: it is malformed, or not of its site, which is counted. Any
// other error is the view's.
func (r *Replicator) takeTransaction(from bourse.WorkerID, body []byte) (placed, error) {
	encoded := slices.Clone(body) // the packet's bytes are not ours
	verdict, err := r.view.Apply(encoded)
	if err != nil {
		r.refusals.add(err, from)
		return placed{}, err
	}
	p := verdict.Position
	switch verdict.Outcome {
	case view.Taken:
		r.count.taken.Add(1)
		r.queue.add(p, encoded)
	case view.Known:
		r.count.duplicates.Add(1)
	case view.Gap: // the view keeps it for a while; others may lack it less
		r.count.gaps.Add(1)
		r.queue.add(p, encoded)
		r.wants.add(p, from, time.Now().Add(r.config.Pace.Grace))
	case view.Unproven: // it cannot be passed on: it may be anybody's
		r.count.gaps.Add(1)
		r.wants.add(p, from, time.Now().Add(r.config.Pace.Grace))
		return placed{p, true}, nil
	case view.Ahead:
		r.ahead(p)
	}
	return placed{Position: p}, nil
}

// takeAnnouncement wants what we lack. What is said of our own site waits for
// a comparison: a new epoch is no light matter.
func (r *Replicator) takeAnnouncement(from bourse.WorkerID, body []byte) {
	r.count.announced.Add(1)
	p, ok := readPosition(body)
	if !ok {
		r.refusals.add(refusedShape, from)
		return
	}
	own := p.Site == r.config.Self.ID && p.Epoch >= r.view.Self().Epoch
	if !own && p.Seq > r.view.Head(p.Stream) {
		r.wants.add(p, from, time.Now().Add(r.config.Pace.Grace))
	}
}
