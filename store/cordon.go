package store

import "github.com/bourse-dev/bourse"

var (
	cordons   = table[bourse.Cordon]{bucket: bucketMeta} // one at most, under keyCordon
	keyCordon = []byte("cordon")
)

// CordonOf returns why the worker takes no orders; nil: it takes them.
func CordonOf(t *Tx) (*bourse.Cordon, error) {
	c, ok, err := cordons.get(t, keyCordon)
	if err != nil || !ok {
		return nil, err
	}
	return &c, nil
}

// SetCordon has the worker take no orders from this transaction on, or take them again:
// c is nil.
func SetCordon(t *Tx, c *bourse.Cordon) error {
	if c == nil {
		return cordons.delete(t, keyCordon)
	}
	return cordons.put(t, keyCordon, c)
}
