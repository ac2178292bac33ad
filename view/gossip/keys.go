package gossip

import "github.com/bourse-dev/bourse"

// SetKeys replaces the encryption keys. From then on, the member encrypts messages with the first
// key, and accepts messages that are encrypted with any of the keys. Errors: CodeFailedPrecondition
// if the member was opened without a key or keys is empty, CodeInvalid if a key is invalid.
func (m *Members) SetKeys(keys [][]byte) error {
	if len(m.config.Key) == 0 || len(keys) == 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "gossip encryption cannot be enabled or disabled while the server is running")
	}
	if err := validateKeys(keys); err != nil {
		return err
	}
	if err := m.keyring.Set(keys); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	return nil
}

func validateKeys(keys [][]byte) error {
	for _, key := range keys {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return bourse.Errorf(bourse.CodeInvalid, "a gossip key has %d bytes, but 16, 24 or 32 are required", n)
		}
	}
	return nil
}
