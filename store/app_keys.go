package store

import (
	"bytes"

	"github.com/bourse-dev/bourse"
)

// AppKeys returns the keys that a machine opens its app's secrets with; none when
// no order has brought any.
func (t *Tx) AppKeys(id bourse.MachineID) bourse.AppKeys {
	return bytes.Clone(t.kv.Get(bucketAppKeys, []byte(id)))
}

// PutAppKeys records the keys that a machine opens its app's secrets with, in place
// of earlier ones. Of a machine that is destroyed none are kept. Codes: invalid.
func (t *Tx) PutAppKeys(id bourse.MachineID, keys bourse.AppKeys) error {
	if err := keys.Validate(); err != nil {
		return err
	}
	k, err := key(string(id))
	if err != nil {
		return err
	}
	return t.kv.Put(bucketAppKeys, k, keys)
}
