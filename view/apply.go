package view

import (
	"bytes"
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Outcome describes how Apply handled a transaction.
type Outcome int

// Outcomes of Apply.
const (
	Queued     Outcome = iota + 1 // the transaction is queued and will soon be in the file
	Known                         // the transaction is already in the file, queued or waiting for earlier ones
	Gap                           // earlier transactions are missing: pull the ones after Head
	FromFuture                    // the transaction claims to be from this server's own site but is unknown here: call Renew
	Unverified                    // the birth certificate is missing, so the signature cannot be verified: pull the transactions after Head
)

// ApplyResult is the result of Apply.
type ApplyResult struct {
	Outcome  Outcome
	Position wire.Position // the transaction's position
}

// Apply checks that an encoded transaction is signed by the site that it names, and queues it. It
// never blocks, does not wait for the file, and does not retain the slice.
//
// Errors: CodeInvalid if the transaction is malformed, CodeForbidden if the transaction is not signed by its site,
// CodeUnavailable if Run has returned.
func (v *View) Apply(encoded []byte) (ApplyResult, error) {
	p, err := wire.DecodePosition(encoded)
	if err != nil {
		return ApplyResult{}, err
	}
	// Gossip delivers most transactions several times, so check for duplicates before decoding.
	if out, err := v.knownOutcome(p); out != 0 || err != nil {
		return ApplyResult{out, p}, err
	}
	tx, err := wire.OpenTx(encoded)
	if err != nil {
		return ApplyResult{}, err
	}
	return v.queueTx(tx, nil)
}

// knownOutcome returns a transaction's outcome if the position alone determines it. Otherwise, it returns 0,
// and the transaction must be decoded.
func (v *View) knownOutcome(p wire.Position) (Outcome, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.state.heads[p.Stream]
	switch {
	case v.ended:
		return 0, errEnded()
	case v.isFromFuture(p):
		return 0, wire.CheckEpoch(p.Stream, v.config.Now())
	case v.intake.has(p, h.seq):
		v.poke() // there may be room for the transaction in the queue by now
		return Known, nil
	case ok:
		return 0, nil
	}
	if err := wire.CheckEpoch(p.Stream, v.config.Now()); err != nil {
		return 0, err
	}
	return 0, p.Site.Validate()
}

// isFromFuture reports whether p names this server's own site but lies beyond the last transaction
// that the server has written. The caller holds the lock.
func (v *View) isFromFuture(p wire.Position) bool {
	self := v.state.self
	return p.Site == self.Site && (p.Epoch > self.Epoch || p.Epoch == self.Epoch && p.Seq > v.state.heads[self].seq)
}

// queueTx checks a transaction's signature and queues the transaction. If a later transaction has already proven who
// wrote this one, proven is the author, and queueTx skips the check.
func (v *View) queueTx(tx *wire.SignedTx, proven *wire.Author) (ApplyResult, error) {
	by := proven
	if by == nil {
		var err error
		if by, err = v.authorOf(tx); err == nil && by != nil && !v.verifier.SignedBy(tx, by) {
			err = wire.ErrForged
		}
		if err != nil {
			v.countForgery(err)
			return ApplyResult{Position: tx.Pos}, err
		}
		if by == nil {
			return ApplyResult{Unverified, tx.Pos}, nil
		}
	}
	in := v.decode(tx, by)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isFromFuture(tx.Pos) {
		return ApplyResult{FromFuture, tx.Pos}, nil
	}
	if pinned := v.recordedAuthor(tx.Pos.Stream); pinned != nil && !pinned.Same(by) {
		return ApplyResult{Position: tx.Pos}, wire.ErrForged
	}
	out := v.intake.admit(in, v.state.heads[tx.Pos.Stream].seq)
	if out == Queued {
		v.poke()
	}
	return ApplyResult{out, tx.Pos}, nil
}

// countForgery increments the number of forgeries if err means that a transaction was not signed by
// the site that it names.
func (v *View) countForgery(err error) {
	if bourse.CodeOf(err) == bourse.CodeForbidden {
		v.mu.Lock()
		v.forged++
		v.mu.Unlock()
	}
}

// recordedAuthor returns the author that was recorded when a stream was first seen, or nil if the
// stream is new. The caller holds the lock.
func (v *View) recordedAuthor(s wire.Stream) *wire.Author {
	if s == v.state.self {
		return &wire.Author{Stream: s, Birth: v.state.signer.Birth}
	}
	if by := v.state.heads[s].by; by != nil {
		return by
	}
	return v.intake.authors[s]
}

// authorOf returns the author of a transaction's stream. It returns nil if neither the view nor the
// transaction contains the stream's birth certificate. It returns CodeForbidden if the
// transaction's birth certificate is invalid or differs from the recorded one.
func (v *View) authorOf(tx *wire.SignedTx) (*wire.Author, error) {
	v.mu.Lock()
	by := v.recordedAuthor(tx.Pos.Stream)
	v.mu.Unlock()
	switch {
	case by == nil && len(tx.Birth) == 0:
		return nil, nil
	case by == nil:
		by = &wire.Author{Stream: tx.Pos.Stream, Birth: bytes.Clone(tx.Birth)}
	case len(tx.Birth) > 0 && !bytes.Equal(tx.Birth, by.Birth):
		return nil, wire.ErrForged
	}
	return by, by.Read(v.verifier.Keys)
}

// decode decodes a transaction's rows. Rows that do not fit the schema are returned in the result's bad field.
func (v *View) decode(tx *wire.SignedTx, by *wire.Author) *incoming {
	in := &incoming{Position: tx.Pos, at: tx.At, by: by, encoded: bytes.Clone(tx.Encoded), rows: make([]schema.Entry, 0, len(tx.Rows))}
	st := wire.Stamp{Position: tx.Pos, At: tx.At}
	for _, raw := range tx.Rows {
		e, err := v.decodeEntry(st, by, raw)
		if err != nil {
			in.bad = append(in.bad, refusal{Stamp: st, table: e.Table, key: e.Key, reason: err, raw: raw})
			continue
		}
		in.rows = append(in.rows, e)
	}
	return in
}

func (v *View) decodeEntry(st wire.Stamp, by *wire.Author, raw []byte) (schema.Entry, error) {
	if len(raw) > wire.MaxRow+wire.MaxKey+wire.MaxColumns*wire.MaxName {
		return schema.Entry{}, fmt.Errorf("a row has %d bytes, but at most %d are allowed", len(raw), wire.MaxRow)
	}
	w, err := wire.DecodeRow(raw)
	if err != nil {
		return schema.Entry{Table: w.Table, Key: w.Key}, err
	}
	e, err := v.tables.Check(st.Site, w.Row())
	if err == nil {
		err = by.CheckMay(e.Shared)
	}
	if err != nil || !e.Shared {
		return e, err
	}
	// The transaction's signature already covers the row. The row also needs its own signature,
	// because members may forward it without the transaction.
	e.Proof = wire.Proof{By: by, Sig: bytes.Clone(w.Sig)}
	r := e.Version(st)
	err = v.verifier.CheckRow(&r)
	e.Proof.Checked = err == nil
	return e, err
}

// Flush waits until all transactions that Apply has queued so far have been written to the file.
func (v *View) Flush(ctx context.Context) error {
	v.mu.Lock()
	f := flush{v.intake.issued, make(chan struct{})}
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
