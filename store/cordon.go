package store

import "github.com/bourse-dev/bourse"

var (
	cordons   = table[bourse.Cordon]{bucket: bucketMeta} // has at most one record, with the key keyCordon
	keyCordon = []byte("cordon")
)

// CordonOf returns the worker's cordon, or nil if the worker accepts orders.
func CordonOf(t *Tx) (*bourse.Cordon, error) {
	c, ok, err := cordons.get(t, keyCordon)
	if err != nil || !ok {
		return nil, err
	}
	return &c, nil
}

// SetCordon sets the worker's cordon, which makes the worker refuse orders. If c is nil, SetCordon
// removes the cordon.
func SetCordon(t *Tx, c *bourse.Cordon) error {
	if c == nil {
		return cordons.delete(t, keyCordon)
	}
	return cordons.put(t, keyCordon, c)
}
