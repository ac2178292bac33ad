package view

import (
	"slices"

	"github.com/bourse-dev/bourse/view/wire"
)

// ring holds recent transactions of all streams in encoded form. They are sent to members that are
// slightly behind. The ring is guarded by the view's lock.
type ring struct {
	max, bytes int
	streams    map[wire.Stream]*segment
	order      []wire.Stream // the stream of each transaction, oldest first; may include dropped transactions
}

// segment holds consecutive recent transactions of one stream.
type segment struct {
	first  uint64
	frames [][]byte
}

func newRing(maxBytes int) ring { return ring{max: maxBytes, streams: map[wire.Stream]*segment{}} }

func (r *ring) push(p wire.Position, frame []byte) {
	s := r.streams[p.Stream]
	if s != nil && s.first+uint64(len(s.frames)) != p.Seq {
		r.drop(p.Stream)
		s = nil
	}
	if s == nil {
		s = &segment{first: p.Seq}
		r.streams[p.Stream] = s
	}
	s.frames = append(s.frames, frame)
	r.order = append(r.order, p.Stream)
	r.bytes += len(frame) + itemOverhead
	for r.bytes > r.max {
		oldest := r.order[0]
		r.order = r.order[1:]
		r.dropOldest(oldest)
	}
}

func (r *ring) dropOldest(of wire.Stream) {
	s := r.streams[of]
	if s == nil {
		return
	}
	r.bytes -= len(s.frames[0]) + itemOverhead
	s.frames[0] = nil
	s.frames = s.frames[1:]
	if s.first++; len(s.frames) == 0 {
		delete(r.streams, of)
	}
}

// drop removes a stream's transactions. It is called after the stream has been restored from a
// snapshot.
func (r *ring) drop(of wire.Stream) {
	if s := r.streams[of]; s != nil {
		for _, f := range s.frames {
			r.bytes -= len(f) + itemOverhead
		}
		delete(r.streams, of)
		r.order = slices.DeleteFunc(r.order, func(s wire.Stream) bool { return s == of })
	}
}

// since returns the transactions that follow p: at least one, and about maxBytes in total. It
// returns false unless the ring contains all transactions between p and head.
func (r *ring) since(p wire.Position, head uint64, maxBytes int) ([][]byte, bool) {
	if p.Seq >= head {
		return nil, true
	}
	s := r.streams[p.Stream]
	if s == nil || p.Seq+1 < s.first || p.Seq+1 >= s.first+uint64(len(s.frames)) {
		return nil, false
	}
	var out [][]byte
	n := 0
	for _, f := range s.frames[p.Seq+1-s.first:] {
		if n += len(f); len(out) > 0 && n > maxBytes {
			break
		}
		out = append(out, f)
	}
	return out, true
}
