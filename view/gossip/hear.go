package gossip

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// rumourSeed makes our hashes of what was heard: they never leave the process.
var rumourSeed = maphash.MakeSeed()

// Hear takes a packet of rumours.
func (r *Replicator) Hear(message []byte) {
	r.count.rumourBytesIn.Add(uint64(len(message)))
	frames, err := openEnvelope(r.check, message)
	if err != nil {
		r.refused(err, "")
		return
	}
	r.take(frames)
}

// Tell gives one packet of rumours.
func (r *Replicator) Tell(overhead, limit int) [][]byte {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	envelope = r.queue.fill(envelope, limit-overhead)
	if envelope == nil {
		return nil
	}
	r.count.rumourBytesOut.Add(uint64(len(envelope)))
	return [][]byte{envelope}
}

// take takes in the transactions and announcements of an envelope, but for
// those transactions that were heard already.
func (r *Replicator) take(frames []frame) {
	from := sender(frames)
	for _, f := range frames {
		switch f.kind {
		case kindTransaction:
			h := maphash.Bytes(rumourSeed, f.body)
			if r.heard.has(h) {
				r.count.duplicates.Add(1)
				continue
			}
			p, err := r.takeTransaction(from, f.body)
			if code := bourse.CodeOf(err); err == nil && !p.again || err != nil && (code == bourse.CodeInvalid || code == bourse.CodeForbidden) {
				r.heard.add(h)
			}
		case kindAnnounce:
			r.takeAnnouncement(from, f.body)
		default: // of a later release, or of another conversation
		}
	}
}

// sender gives who says that it sent an envelope, "" when it does not.
func sender(frames []frame) bourse.WorkerID {
	for _, f := range frames {
		if f.kind == kindFrom && bourse.WorkerID(f.body).Validate() == nil {
			return bourse.WorkerID(f.body)
		}
	}
	return ""
}

// takePushed is take for what was sent to us alone: nothing of it is taken for
// known before the view has said so. It gives the streams that there were
// transactions of.
func (r *Replicator) takePushed(frames []frame) []view.Stream {
	from := sender(frames)
	var touched []view.Stream
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

// placed is where a transaction stands, and whether it would be taken otherwise
// if it came again.
type placed struct {
	view.Position
	again bool
}

// takeTransaction takes one in and passes it on when it is new. CodeInvalid and
// CodeForbidden: it is malformed, or not of its site, which is counted. Any
// other error is the view's.
func (r *Replicator) takeTransaction(from bourse.WorkerID, body []byte) (placed, error) {
	encoded := slices.Clone(body) // the packet's bytes are not ours
	verdict, err := r.view.Apply(encoded)
	if err != nil {
		r.refused(err, from)
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
		r.refused(refusedShape, from)
		return
	}
	own := p.Site == r.config.Self.ID && p.Epoch >= r.view.Self().Epoch
	if !own && p.Seq > r.view.Head(p.Stream) {
		r.wants.add(p, from, time.Now().Add(r.config.Pace.Grace))
	}
}

// refused counts what was not taken in, and logs it rarely. Errors of the view
// itself say nothing about the other one.
func (r *Replicator) refused(err error, from bourse.WorkerID) {
	reason := refusedShape
	if why, ok := errors.AsType[refusal](err); ok {
		reason = why
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeForbidden:
		reason = refusedForged
	case bourse.CodeUnavailable:
		return
	default:
	}
	switch reason {
	case refusedForged:
		r.count.forged.Add(1)
	case refusedVersion:
		r.count.otherVersion.Add(1)
	case refusedCluster:
		r.count.otherCluster.Add(1)
	default:
		r.count.malformed.Add(1)
	}
	if r.quiet.due(string(reason), time.Now()) {
		r.config.Log.Warn("what another server says of the view is refused", slog.String("member", string(from)), slog.Any("err", err))
	}
}
