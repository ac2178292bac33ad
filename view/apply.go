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
	Taken Outcome = iota + 1 // it will be in the file soon
	Known                    // we have it already
	Gap                      // transactions before it are missing: pull what follows Head
	Ahead                    // it is of our own site and we do not know it: Renew
)

// Verdict is the answer to a transaction of another site.
type Verdict struct {
	Outcome  Outcome
	Position Position // of the transaction
}

// maxStreams bounds what members that make up sites can fill.
const maxStreams = 1 << 16

// Apply takes in an encoded transaction of another site. It does not wait for
// the file, never blocks, and keeps nothing of the slice. CodeInvalid: it is malformed and
// nothing of it is taken in. CodeUnavailable: Run has ended.
func (v *View) Apply(encoded []byte) (Verdict, error) {
	p, err := Peek(encoded)
	if err != nil {
		return Verdict{}, err
	}
	// Gossip brings most transactions several times: look before decoding.
	if out, err := v.known(p); out != 0 || err != nil {
		return Verdict{out, p}, err
	}
	in, err := v.decode(encoded)
	if err != nil {
		return Verdict{}, err
	}
	v.mu.Lock()
	out := v.intake.admit(in, v.state.heads[p.Stream].seq)
	v.mu.Unlock()
	if out == Taken {
		v.poke()
	}
	return Verdict{out, p}, nil
}

// known gives 0 for a transaction that has to be looked at.
func (v *View) known(p Position) (Outcome, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.state.heads[p.Stream]
	switch {
	case v.ended:
		return 0, errEnded()
	case p.Site == v.state.self.Site && p.Epoch >= v.state.self.Epoch && (p.Epoch > v.state.self.Epoch || p.Seq > h.seq):
		return Ahead, v.checkEpoch(p.Stream)
	case v.intake.has(p, h.seq):
		v.poke() // it may have been queued only now
		return Known, nil
	case ok:
		return 0, nil
	case len(v.state.heads) >= maxStreams:
		return 0, bourse.Errorf(bourse.CodeUnavailable, "more than %d streams", maxStreams)
	}
	if err := v.checkEpoch(p.Stream); err != nil {
		return 0, err
	}
	return 0, p.Site.Validate()
}

// decode reads a transaction and sorts out the rows that do not fit.
func (v *View) decode(encoded []byte) (*incoming, error) {
	tx, rows, err := decodeTx(encoded)
	if err != nil {
		return nil, err
	}
	in := &incoming{Position: tx.Position, at: tx.At, encoded: bytes.Clone(encoded), rows: make([]entry, 0, len(rows))}
	for _, raw := range rows {
		e, err := v.decodeEntry(tx.Site, raw)
		if err != nil {
			in.bad = append(in.bad, refusal{stamp: stamp{tx.Position, tx.At}, table: e.table, key: e.key, reason: err, raw: raw})
			continue
		}
		in.rows = append(in.rows, e)
	}
	return in, nil
}

func (v *View) decodeEntry(site bourse.WorkerID, raw []byte) (entry, error) {
	if len(raw) > MaxRow+MaxKey+MaxColumns*maxName {
		return entry{}, fmt.Errorf("a row of %d bytes, at most %d", len(raw), MaxRow)
	}
	w, err := decodeRow(raw)
	if err != nil {
		return entry{table: w.Table, key: w.Key}, err
	}
	return v.tables.check(site, w.row())
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
