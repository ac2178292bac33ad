package admission

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"

	"github.com/bourse-dev/bourse"
)

// LoadGossipKey reads the key that encrypts the membership: 16, 24 or 32
// bytes (AES-128, 192 or 256), written in base64 or hex. Anything else is
// CodeInvalid.
func LoadGossipKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the gossip key: %w", err)
	}
	return parseGossipKey(text)
}

// parseGossipKey tries hex first: a hex text is base64 too, of another length.
func parseGossipKey(text []byte) ([]byte, error) {
	text = bytes.TrimSpace(text)
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString} {
		key, err := decode(string(text))
		if err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, bourse.Errorf(bourse.CodeInvalid, "the gossip key must be 16, 24 or 32 bytes in base64 or hex")
}
