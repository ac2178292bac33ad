package admission

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"

	"github.com/bourse-dev/bourse"
)

// maxGossipKeys is the maximum number of keys in a file. It is small because a server may have to
// try every key for each message.
const maxGossipKeys = 8

// LoadGossipKeys reads the keys that encrypt gossip messages. Each line of the file contains one
// key of 16, 24 or 32 bytes (AES-128, 192 or 256), in base64 or hex. Empty lines and lines that
// begin with "#" are ignored. The first key encrypts; all keys decrypt. When the file changes,
// [Live.Look] passes the new keys to changed; see [NewLive]. Errors: invalid.
func LoadGossipKeys(path string, changed func([][]byte) error) (*Live[[][]byte], error) {
	return NewLive([]string{path}, func() ([][]byte, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read the gossip key: %w", err)
		}
		return ParseGossipKeys(text)
	}, changed)
}

// ParseGossipKeys parses the contents of a gossip key file. Errors: invalid.
func ParseGossipKeys(text []byte) ([][]byte, error) {
	var keys [][]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := parseGossipKey(line)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if n := len(keys); n == 0 || n > maxGossipKeys {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the gossip key file has %d keys: use 1 to %d, one on each line", n, maxGossipKeys)
	}
	return keys, nil
}

// parseGossipKey parses a key in hex or base64. It tries hex first, because hex text is also
// valid base64 for a longer key.
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

// GossipKeyIDs returns the IDs of gossip keys. An ID does not reveal anything about its key.
func GossipKeyIDs(keys [][]byte) []string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		sum := sha256.Sum256(append([]byte("bourse gossip key id\x00"), key...))
		ids[i] = hex.EncodeToString(sum[:8])
	}
	return ids
}

// NewGossipKey creates a gossip key and returns it as a line of a key file.
func NewGossipKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand never fails
	return []byte(hex.EncodeToString(key) + "\n")
}
