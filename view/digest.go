package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/bourse-dev/bourse/view/wire"
)

// Head describes the last transaction of a stream in this server's view.
type Head struct {
	wire.Position
	Hash uint64 `json:"hash"` // hash of the stream's owned rows
	At   int64  `json:"at"`   // time when the site wrote the transaction, by its own clock
}

// Digest summarizes a view's contents. Two members with equal digests have equal views.
type Digest struct {
	Heads  []Head `json:"heads"`  // sorted by site, then epoch
	Shared uint64 `json:"shared"` // hash of all shared rows
}

// Digest returns this view's digest. It does not read the file.
func (v *View) Digest() Digest {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Digest{v.state.sorted(v.config.Now()), v.state.sharedHash()}
}

// Head returns the sequence number of a stream's last applied transaction, or 0 if there is none.
func (v *View) Head(s wire.Stream) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.heads[s].seq
}

// Superseded reports whether this server has the stream but also knows a later epoch of its site.
// If so, the stream's owned rows are no longer valid.
func (v *View) Superseded(s wire.Stream) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.heads[s].seq > 0 && s.Epoch < v.state.newest[s.Site]
}

// Self returns the position of this server's own last transaction.
func (v *View) Self() wire.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return wire.Position{Stream: v.state.self, Seq: v.state.heads[v.state.self].seq}
}

// Since returns the encoded transactions that follow p in its stream, in order: at least one, and
// about maxBytes in total. If p is the stream's latest position, Since returns no transactions and
// true. If the ring no longer contains the transactions, Since returns false, and the caller needs
// a snapshot.
func (v *View) Since(p wire.Position, maxBytes int) (encoded [][]byte, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ring.since(p, v.state.heads[p.Stream].seq, maxBytes)
}

// sorted returns the heads of all streams that have not expired, sorted by site, then epoch.
func (st *state) sorted(now time.Time) []Head {
	out := make([]Head, 0, len(st.heads))
	for s, h := range st.heads {
		if h.seq > 0 && (s == st.self || !h.expired(now)) {
			out = append(out, Head{wire.Position{Stream: s, Seq: h.seq}, h.hash, h.at})
		}
	}
	slices.SortFunc(out, func(a, b Head) int { return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Epoch, b.Epoch)) })
	return out
}
