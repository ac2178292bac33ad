package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Place is where a value belongs. It is authenticated with the value.
type Place struct {
	App  string // id
	Name string // of the secret
}

// bytes writes a place so that no other is written alike: ids of apps have no
// zero byte.
func (p Place) bytes() []byte { return []byte("bourse secret\x00" + p.App + "\x00" + p.Name) }

// What is sealed is a version, the id of the app's key, and what AES-256-GCM makes
// of the value: a random nonce, as many bytes as the value has, and a tag.
const (
	version   = 2
	idSize    = 8
	nonceSize = 12
	tagSize   = 16

	// Overhead is how much longer a value is when it is sealed.
	Overhead = 1 + idSize + nonceSize + tagSize
)

func cipherOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal seals a value for its place.
func (k *Keys) Seal(p Place, value []byte) ([]byte, error) {
	key := k.OfApp(p.App)[:keySize]
	aead, err := cipherOf(key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "seal: %w", err)
	}
	return aead.Seal(append([]byte{version}, idOf(key)...), nil, value, p.bytes()), nil
}

// Digest returns a short text that is the same for the same value at the same
// place, and tells no one but brokers whether a guess of the value is right.
func (k *Keys) Digest(p Place, value []byte) string {
	mac := hmac.New(sha256.New, derive(k.all[0], "bourse secrets digest"))
	mac.Write(p.bytes())
	mac.Write([]byte{0})
	mac.Write(value)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Open returns a value that was sealed for a place, with any of its app's keys.
// Codes: failed_precondition (it was sealed with another key), invalid (it was
// never sealed for this place).
func Open(keys bourse.AppKeys, p Place, sealed []byte) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version {
		return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s is not sealed as this release seals", bourse.Quoted(p.Name))
	}
	if err := keys.Validate(); err != nil {
		return nil, err
	}
	for key := range slices.Chunk(keys, keySize) {
		if !bytes.Equal(idOf(key), sealed[1:1+idSize]) {
			continue
		}
		aead, err := cipherOf(key)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInternal, "open: %w", err)
		}
		value, err := aead.Open(nil, nil, sealed[1+idSize:], p.bytes())
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s does not open: it was sealed for another place, or changed", bourse.Quoted(p.Name))
		}
		return value, nil
	}
	return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "secret %s was sealed with another key", bourse.Quoted(p.Name))
}
