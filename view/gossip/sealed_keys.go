package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
)

// PublicKey returns the key that members use if no key is configured. It is publicly known, so it
// does not keep messages secret.
func PublicKey() []byte {
	sum := sha256.Sum256([]byte("bourse: a membership without a key"))
	return sum[:]
}

// A sealed message consists of the version, a nonce, the encrypted message and a tag.
const (
	version   = 1 // not version 0, whose padding could cause errors
	nonceSize = 12
	tagSize   = 16
	overhead  = 1 + nonceSize + tagSize
)

var errSealed = errors.New("no known key decrypts the message")

// Keys holds a group's encryption keys. They may be replaced while they are in use.
type Keys struct{ all atomic.Pointer[[]cipher.AEAD] }

// NewKeys returns Keys that contain the given keys or, if there are none, the result of PublicKey.
func NewKeys(keys [][]byte) (*Keys, error) {
	k := &Keys{}
	if len(keys) == 0 {
		keys = [][]byte{PublicKey()}
	}
	return k, k.Set(keys)
}

// Set replaces the keys. From then on, messages are encrypted with the first key, and may be
// decrypted with any of the keys.
func (k *Keys) Set(keys [][]byte) error {
	all := make([]cipher.AEAD, 0, len(keys))
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return fmt.Errorf("gossip key: %w", err)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return fmt.Errorf("gossip key: %w", err)
		}
		all = append(all, gcm)
	}
	k.all.Store(&all)
	return nil
}

// seal encrypts and authenticates a message and appends the result to dst. bound is additional data
// that is also authenticated, but not included in the result.
func (k *Keys) seal(dst, message, bound []byte) []byte {
	dst = append(dst, version)
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	dst = append(dst, nonce[:]...)
	return (*k.all.Load())[0].Seal(dst, nonce[:], message, bound)
}

// open decrypts a sealed message. It does not decrypt in place, because a failed attempt would
// destroy the message.
func (k *Keys) open(sealed, bound []byte) ([]byte, error) {
	if len(sealed) < overhead || sealed[0] != version {
		return nil, errSealed
	}
	nonce, text := sealed[1:1+nonceSize], sealed[1+nonceSize:]
	for _, key := range *k.all.Load() {
		message, err := key.Open(nil, nonce, text, bound)
		if err == nil {
			return message, nil
		}
	}
	return nil, errSealed
}
