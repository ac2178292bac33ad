package admit

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// cordoned refuses everything new while an operator wants the worker to take no orders,
// what was held for a reservation before too: who drains the worker has then
// seen all that it will have.
func cordoned(tx *store.Tx) (*bourse.Refusal, error) {
	c, err := store.CordonOf(tx)
	if err != nil || c == nil {
		return nil, err
	}
	detail := "the worker is cordoned"
	if c.By != "" {
		detail += " by " + c.By
	}
	return &bourse.Refusal{Reason: bourse.RefusedCordoned, Detail: detail}, nil
}
