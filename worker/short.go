package worker

import "github.com/bourse-dev/bourse"

// fits returns why something new that takes so much cannot begin here, nil when
// it can: the ledger's reason, or that the store keeps what it can still record
// for the ends of what there is.
func (w *Worker) fits(committed, takes bourse.Amounts) *bourse.Refusal {
	if err := w.store.Short(); err != nil {
		return w.refusal(bourse.RefusedUnavailable, bourse.MessageOf(err))
	}
	return w.ledger.fits(committed, takes)
}
