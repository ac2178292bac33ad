package view

import (
	"bytes"

	"github.com/bourse-dev/bourse/view/wire"
)

// Applied is ApplyAll's result for one transaction.
type Applied struct {
	ApplyResult
	Err error
}

// ApplyAll applies several transactions in order. If consecutive transactions belong to one stream and each contains
// the hash of the previous one, ApplyAll checks only the last one's signature.
func (v *View) ApplyAll(encoded [][]byte) []Applied {
	out := make([]Applied, len(encoded))
	txs := make([]*wire.SignedTx, len(encoded)) // an entry is nil if its transaction needs no further processing
	births := map[wire.Stream]*wire.Author{}
	for i, b := range encoded {
		txs[i], out[i].Err = wire.OpenTx(b)
		if txs[i] == nil {
			continue
		}
		out[i].Position = txs[i].Pos
		if out[i].Outcome, out[i].Err = v.knownOutcome(txs[i].Pos); out[i].Outcome != 0 || out[i].Err != nil {
			txs[i] = nil
			continue
		}
		if births[txs[i].Pos.Stream] == nil {
			if by, err := v.authorOf(txs[i]); err == nil {
				births[txs[i].Pos.Stream] = by
			}
		}
	}
	proven := v.authorsByLater(txs, births)
	for i, tx := range txs {
		if tx != nil {
			out[i].ApplyResult, out[i].Err = v.queueTx(tx, proven[i])
		}
	}
	return out
}

// authorsByLater returns an element for each transaction. The element is the transaction's author
// if a later transaction's signature proves who that is. It is nil if the transaction's own
// signature still has to be checked.
func (v *View) authorsByLater(txs []*wire.SignedTx, births map[wire.Stream]*wire.Author) []*wire.Author {
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
		if proven[i+1] == nil && v.verifier.SignedBy(next, by) {
			proven[i+1] = by
		}
		if proven[i+1] != nil {
			proven[i] = by
		}
	}
	return proven
}

// ForgedCount returns how many transactions and rows received since startup were not signed by the sites that they
// name.
func (v *View) ForgedCount() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.forged
}
