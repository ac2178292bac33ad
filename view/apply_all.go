package view

import (
	"bytes"

	"github.com/bourse-dev/bourse/view/wire"
)

// Applied is what became of one of several transactions.
type Applied struct {
	Verdict
	Err error
}

// ApplyAll is Apply for transactions that come together, in their order. One
// signature is enough for a run of a stream's transactions that are linked:
// each proves the one before it.
func (v *View) ApplyAll(encoded [][]byte) []Applied {
	out := make([]Applied, len(encoded))
	txs := make([]*wire.Sealed, len(encoded)) // nil: nothing is left to do
	births := map[wire.Stream]*wire.Author{}
	for i, b := range encoded {
		txs[i], out[i].Err = wire.OpenTx(b)
		if txs[i] == nil {
			continue
		}
		out[i].Position = txs[i].Pos
		if out[i].Outcome, out[i].Err = v.known(txs[i].Pos); out[i].Outcome != 0 || out[i].Err != nil {
			txs[i] = nil
			continue
		}
		if births[txs[i].Pos.Stream] == nil {
			if by, err := v.authorOf(txs[i]); err == nil {
				births[txs[i].Pos.Stream] = by
			}
		}
	}
	proven := v.provenByLater(txs, births)
	for i, tx := range txs {
		if tx != nil {
			out[i].Verdict, out[i].Err = v.take(tx, proven[i])
		}
	}
	return out
}

// provenByLater returns who has signed each of some transactions, as far as
// signatures of later ones among them show; nil: it has to be looked at itself.
func (v *View) provenByLater(txs []*wire.Sealed, births map[wire.Stream]*wire.Author) []*wire.Author {
	proven := make([]*wire.Author, len(txs))
	for i := len(txs) - 2; i >= 0; i-- {
		tx, next := txs[i], txs[i+1]
		if tx == nil || next == nil || !next.Follows(tx) {
			continue
		}
		by := births[tx.Pos.Stream]
		if by == nil || len(tx.Birth) > 0 && !bytes.Equal(tx.Birth, by.Birth) {
			continue
		}
		if proven[i+1] == nil && v.verifier.SealedBy(next, by) {
			proven[i+1] = by
		}
		if proven[i+1] != nil {
			proven[i] = by
		}
	}
	return proven
}

// Forged counts the transactions and rows, since the start, that were not of
// the sites that they claimed to be of.
func (v *View) Forged() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.forged
}
