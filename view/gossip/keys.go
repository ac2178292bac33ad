package gossip

import (
	"bytes"
	"slices"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// ring makes memberlist's ring of the keys; none means no encryption.
func ring(keys [][]byte) (*memberlist.Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	r, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "gossip keys: %w", err)
	}
	return r, nil
}

// SetKeys changes the keys of a member that was opened with some: the first
// encrypts from now on, and what comes in may have any of them.
func (m *Members) SetKeys(keys [][]byte) error {
	if m.ring == nil || len(keys) == 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "gossip cannot begin or cease to be encrypted while a server runs")
	}
	if err := validateKeys(keys); err != nil {
		return err
	}
	for _, key := range keys {
		if err := m.ring.AddKey(key); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "gossip keys: %w", err)
		}
	}
	for _, key := range slices.Backward(keys) {
		if err := m.ring.UseKey(key); err != nil { // puts it in front
			return bourse.Errorf(bourse.CodeInternal, "gossip keys: %w", err)
		}
	}
	// What is not wanted stands behind. It is removed from the end, because
	// memberlist moves what is behind a removed key in a slice that others read.
	for _, key := range slices.Backward(m.ring.GetKeys()) {
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			break
		}
		if err := m.ring.RemoveKey(key); err != nil {
			return bourse.Errorf(bourse.CodeInternal, "gossip keys: %w", err)
		}
	}
	return nil
}

func validateKeys(keys [][]byte) error {
	for _, key := range keys {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return bourse.Errorf(bourse.CodeInvalid, "a gossip key has %d bytes: use 16, 24 or 32", n)
		}
	}
	return nil
}
