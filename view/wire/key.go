package wire

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/bourse-dev/bourse"
)

// Key is the Keys of a cluster without certificates: each site makes a key of
// its own, and a birth is the public half with a role. It proves that an
// epoch's transactions are of one hand, not whose: who may speak in such a
// cluster is trusted.
type Key struct {
	Birth []byte
	Key   ed25519.PrivateKey
}

var _ Keys = (*Key)(nil)

// KeySuffix ends the name of the file that holds a site's key.
const KeySuffix = ".key"

// KeyBirth begins the birth of a Key; a certificate never begins so.
const KeyBirth = "key "

// NewKey makes a key that is kept nowhere.
func NewKey(role bourse.Role) (*Key, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "make a key: %w", err)
	}
	return KeyOf(role, key), nil
}

// KeyOf makes a Key of a private one.
func KeyOf(role bourse.Role, key ed25519.PrivateKey) *Key {
	birth := append([]byte(KeyBirth+string(role)+" "), key.Public().(ed25519.PublicKey)...)
	return &Key{birth, key}
}

// LoadKey reads the key of a file, which it makes for this user alone when
// there is none. One that is no key is made again: it was good for nothing but
// the epoch that ends with it.
func LoadKey(path string, role bourse.Role) (*Key, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read the view's key: %w", err)
	}
	if seed, err := hex.DecodeString(string(bytes.TrimSpace(text))); err == nil && len(seed) == ed25519.SeedSize {
		return KeyOf(role, ed25519.NewKeyFromSeed(seed)), nil
	}
	k, err := NewKey(role)
	if err != nil {
		return nil, err
	}
	next := path + ".new" // a key is whole or not there
	if err := os.WriteFile(next, []byte(hex.EncodeToString(k.Key.Seed())+"\n"), 0o600); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "keep the view's key: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "keep the view's key: %w", err)
	}
	return k, nil
}

// Own implements Keys.
func (k *Key) Own() ([]byte, crypto.Signer) { return k.Birth, k.Key }

// Author implements Keys. It believes every key.
func (*Key) Author(birth []byte, _ time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	rest, ok := bytes.CutPrefix(birth, []byte(KeyBirth))
	role, key, whole := bytes.Cut(rest, []byte{' '})
	if !ok || !whole || len(key) != ed25519.PublicKeySize || bourse.WorkerID(role).Validate() != nil { // the same alphabet
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "a birth that is no key")
	}
	return "", bourse.Role(role), ed25519.PublicKey(key), nil
}
