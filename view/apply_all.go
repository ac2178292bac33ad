package view

import "bytes"

// Applied is what became of one of several transactions.
type Applied struct {
	Verdict
	Err error
}

// ApplyAll is Apply for transactions that come together, in their order. One
// signature is enough for a run of a stream's transactions that are linked:
// each vouches for the one before it.
func (v *View) ApplyAll(encoded [][]byte) []Applied {
	out := make([]Applied, len(encoded))
	txs := make([]*sealed, len(encoded)) // nil: nothing is left to do
	births := map[Stream]*author{}
	for i, b := range encoded {
		txs[i], out[i].Err = openTx(b)
		if txs[i] == nil {
			continue
		}
		out[i].Position = txs[i].at
		if out[i].Outcome, out[i].Err = v.known(txs[i].at); out[i].Outcome != 0 || out[i].Err != nil {
			txs[i] = nil
			continue
		}
		if births[txs[i].at.Stream] == nil {
			if by, err := v.authorOf(txs[i]); err == nil {
				births[txs[i].at.Stream] = by
			}
		}
	}
	vouched := v.vouch(txs, births)
	for i, tx := range txs {
		if tx != nil {
			out[i].Verdict, out[i].Err = v.take(tx, vouched[i])
		}
	}
	return out
}

// vouch says who has signed each of some transactions, as far as signatures of
// later ones among them tell; nil: it has to be looked at itself.
func (v *View) vouch(txs []*sealed, births map[Stream]*author) []*author {
	vouched := make([]*author, len(txs))
	for i := len(txs) - 2; i >= 0; i-- {
		tx, next := txs[i], txs[i+1]
		if tx == nil || next == nil || !next.follows(tx) {
			continue
		}
		by := births[tx.at.Stream]
		if by == nil || len(tx.Birth) > 0 && !bytes.Equal(tx.Birth, by.birth) {
			continue
		}
		if vouched[i+1] == nil && v.notary.sealedBy(next, by) {
			vouched[i+1] = by
		}
		if vouched[i+1] != nil {
			vouched[i] = by
		}
	}
	return vouched
}

// follows reports whether a transaction is linked to the one before it.
func (s *sealed) follows(before *sealed) bool {
	return s.at.Stream == before.at.Stream && s.at.Seq == before.at.Seq+1 && len(s.Prev) == linkSize && bytes.Equal(s.Prev, Link(before.encoded))
}

// Forged counts the transactions and rows, since the start, that were not of
// the sites that they claimed to be of.
func (v *View) Forged() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.forged
}
