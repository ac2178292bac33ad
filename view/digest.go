package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/bourse-dev/bourse/view/wire"
)

// Head is how far we have a stream.
type Head struct {
	wire.Position
	Hash uint64 `json:"hash"` // of the stream's owned rows
	At   int64  `json:"at"`   // when the site wrote that transaction, by its clock
}

// Digest is what two members compare: with equal digests, their views are
// equal.
type Digest struct {
	Heads  []Head `json:"heads"`  // by site, then epoch
	Shared uint64 `json:"shared"` // of all shared rows
}

// Digest returns ours. It is cheap.
func (v *View) Digest() Digest {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Digest{v.state.sorted(v.config.Now()), v.state.sharedHash()}
}

// Head returns the last transaction that we have of a stream, 0 for none.
func (v *View) Head(s wire.Stream) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.heads[s].seq
}

// Self returns how far our own stream is.
func (v *View) Self() wire.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return wire.Position{Stream: v.state.self, Seq: v.state.heads[v.state.self].seq}
}

// Since returns the transactions of a stream that follow p, in order and
// encoded, at most about maxBytes of them and at least one. When there is
// nothing after p it returns none and true; false: only a snapshot helps.
func (v *View) Since(p wire.Position, maxBytes int) (encoded [][]byte, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ring.since(p, v.state.heads[p.Stream].seq, maxBytes)
}

// sorted returns the heads in order, without those that are over.
func (st *state) sorted(now time.Time) []Head {
	out := make([]Head, 0, len(st.heads))
	for s, h := range st.heads {
		if h.seq > 0 && (s == st.self || !h.over(now)) {
			out = append(out, Head{wire.Position{Stream: s, Seq: h.seq}, h.hash, h.at})
		}
	}
	slices.SortFunc(out, func(a, b Head) int { return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Epoch, b.Epoch)) })
	return out
}
