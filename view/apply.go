package view

import (
	"bytes"
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Outcome says what became of a transaction.
type Outcome int

// The outcomes.
const (
	Taken    Outcome = iota + 1 // it will be in the file soon
	Known                       // we have it already
	Gap                         // transactions before it are missing: pull what follows Head
	Ahead                       // it is of our own site and we do not know it: Renew
	Unproven                    // we lack what its signature is checked with: pull what follows Head
)

// Verdict is the answer to a transaction of another site.
type Verdict struct {
	Outcome  Outcome
	Position Position // of the transaction
}

// Apply takes in an encoded transaction of another site, when the site has
// signed it. It does not wait for the file, never blocks, and keeps nothing of
// the slice. CodeInvalid: it is malformed and nothing of it is taken in.
// CodeForbidden: it is not of its site, whatever member passed it on.
// CodeUnavailable: Run has ended.
func (v *View) Apply(encoded []byte) (Verdict, error) {
	p, err := Peek(encoded)
	if err != nil {
		return Verdict{}, err
	}
	// Gossip brings most transactions several times: look before decoding.
	if out, err := v.known(p); out != 0 || err != nil {
		return Verdict{out, p}, err
	}
	tx, err := openTx(encoded)
	if err != nil {
		return Verdict{}, err
	}
	return v.take(tx, nil)
}

// known gives 0 for a transaction that has to be looked at.
func (v *View) known(p Position) (Outcome, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.state.heads[p.Stream]
	switch {
	case v.ended:
		return 0, errEnded()
	case v.ahead(p):
		return 0, v.checkEpoch(p.Stream)
	case v.intake.has(p, h.seq):
		v.poke() // it may have been queued only now
		return Known, nil
	case ok:
		return 0, nil
	}
	if err := v.checkEpoch(p.Stream); err != nil {
		return 0, err
	}
	return 0, p.Site.Validate()
}

// ahead reports whether a position is one of ours that we have not come to. The
// lock is held.
func (v *View) ahead(p Position) bool {
	self := v.state.self
	return p.Site == self.Site && (p.Epoch > self.Epoch || p.Epoch == self.Epoch && p.Seq > v.state.heads[self].seq)
}

// take takes in a transaction that is new. vouched is who has signed it, when
// that is known from a later one.
func (v *View) take(tx *sealed, vouched *author) (Verdict, error) {
	by := vouched
	if by == nil {
		var err error
		if by, err = v.authorOf(tx); err == nil && by != nil && !v.notary.sealedBy(tx, by) {
			err = errForged
		}
		if err != nil {
			v.noteForged(err)
			return Verdict{Position: tx.at}, err
		}
		if by == nil {
			return Verdict{Unproven, tx.at}, nil
		}
	}
	in := v.decode(tx, by)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ahead(tx.at) {
		return Verdict{Ahead, tx.at}, nil
	}
	if pinned := v.pinned(tx.at.Stream); pinned != nil && !pinned.same(by) {
		return Verdict{Position: tx.at}, errForged
	}
	out := v.intake.admit(in, v.state.heads[tx.at.Stream].seq)
	if out == Taken {
		v.poke()
	}
	return Verdict{out, tx.at}, nil
}

// noteForged counts what is not of its site.
func (v *View) noteForged(err error) {
	if bourse.CodeOf(err) == bourse.CodeForbidden {
		v.mu.Lock()
		v.forged++
		v.mu.Unlock()
	}
}

// sealedBy reports whether an author has signed a transaction.
func (n *notary) sealedBy(tx *sealed, by *author) bool {
	return signed(by.key, message(signedTransaction, n.cluster, tx.body), tx.sig)
}

// pinned returns the author of a stream, nil when we do not have it. The lock is
// held.
func (v *View) pinned(s Stream) *author {
	if s == v.state.self {
		return &author{stream: s, birth: v.state.pen.birth}
	}
	if by := v.state.heads[s].by; by != nil {
		return by
	}
	return v.intake.authors[s]
}

// authorOf returns who writes a transaction's stream: nil when neither we know
// nor it says. CodeForbidden: not who it says.
func (v *View) authorOf(tx *sealed) (*author, error) {
	v.mu.Lock()
	by := v.pinned(tx.at.Stream)
	v.mu.Unlock()
	switch {
	case by == nil && len(tx.Birth) == 0:
		return nil, nil
	case by == nil:
		by = &author{stream: tx.at.Stream, birth: bytes.Clone(tx.Birth)}
	case len(tx.Birth) > 0 && !bytes.Equal(tx.Birth, by.birth):
		return nil, errForged
	}
	return by, by.read(v.notary.keys)
}

// decode reads a transaction and sorts out the rows that do not fit.
func (v *View) decode(tx *sealed, by *author) *incoming {
	in := &incoming{Position: tx.at, at: tx.At, by: by, encoded: bytes.Clone(tx.encoded), rows: make([]entry, 0, len(tx.Rows))}
	st := stamp{tx.at, tx.At}
	for _, raw := range tx.Rows {
		e, err := v.decodeEntry(st, by, raw)
		if err != nil {
			in.bad = append(in.bad, refusal{stamp: st, table: e.table, key: e.key, reason: err, raw: raw})
			continue
		}
		in.rows = append(in.rows, e)
	}
	return in
}

func (v *View) decodeEntry(st stamp, by *author, raw []byte) (entry, error) {
	if len(raw) > MaxRow+MaxKey+MaxColumns*maxName {
		return entry{}, fmt.Errorf("a row of %d bytes, at most %d", len(raw), MaxRow)
	}
	w, err := decodeRow(raw)
	if err != nil {
		return entry{table: w.Table, key: w.Key}, err
	}
	e, err := v.tables.check(st.Site, w.row())
	if err != nil || !e.shared {
		return e, err
	}
	// Its site has signed the transaction, but others get the row alone.
	e.proof = proof{by: by, sig: bytes.Clone(w.Sig)}
	r := e.version(st)
	err = v.notary.attest(&r)
	e.proof.checked = err == nil
	return e, err
}

// Flush waits until everything taken by Apply before is in the file.
func (v *View) Flush(ctx context.Context) error {
	v.mu.Lock()
	f := flush{v.intake.given, make(chan struct{})}
	switch {
	case v.ended:
		v.mu.Unlock()
		return errEnded()
	case f.ticket <= v.intake.done:
		close(f.done)
	default:
		v.intake.flushes = append(v.intake.flushes, f)
	}
	v.mu.Unlock()
	select {
	case <-f.done:
		return nil
	case <-v.stopped:
		return errEnded()
	case <-ctx.Done():
		return fmt.Errorf("flush the view: %w", context.Cause(ctx))
	}
}
