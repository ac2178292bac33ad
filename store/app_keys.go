package store

import (
	"bytes"

	"github.com/bourse-dev/bourse"
)

// AppKeys returns the keys that a machine uses to open its app's secrets, or nil if none are recorded.
func (t *Tx) AppKeys(id bourse.MachineID) bourse.AppKeys {
	return bytes.Clone(t.kv.Get(bucketAppKeys, []byte(id)))
}

// PutAppKeys records the keys that a machine uses to open its app's secrets, replacing earlier
// ones. The keys are deleted when the machine is destroyed. Errors: CodeInvalid.
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
