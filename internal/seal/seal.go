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

// Place identifies the secret to which a value belongs. It is authenticated together with the
// value.
type Place struct {
	App  string // id of the app
	Name string // name of the secret
}

// bytes encodes a place. Different places have different encodings, because an app's id does not
// contain a zero byte.
func (p Place) bytes() []byte { return []byte("bourse secret\x00" + p.App + "\x00" + p.Name) }

// A sealed value consists of a version, the id of the app's key, and the AES-256-GCM output: a
// random nonce, the ciphertext (as long as the value), and a tag.
const (
	version   = 2
	idSize    = 8
	nonceSize = 12
	tagSize   = 16

	// Overhead is the number of bytes that sealing adds to a value.
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

// Digest returns a short string that identifies a secret's value. Only someone with a broker's keys
// can use it to test guesses at the value.
func (k *Keys) Digest(p Place, value []byte) string {
	mac := hmac.New(sha256.New, derive(k.all[0], "bourse secrets digest"))
	mac.Write(p.bytes())
	mac.Write([]byte{0})
	mac.Write(value)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Open uses the app's keys to decrypt a value that was sealed for a place. Errors:
// failed_precondition if it was sealed with another key; invalid if it was sealed for another place
// or was modified.
func Open(keys bourse.AppKeys, p Place, sealed []byte) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version {
		return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s is not sealed in this release's format", bourse.Quoted(p.Name))
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
			return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s cannot be decrypted: it was sealed for another app or name, or was modified", bourse.Quoted(p.Name))
		}
		return value, nil
	}
	return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "secret %s was sealed with another key", bourse.Quoted(p.Name))
}
