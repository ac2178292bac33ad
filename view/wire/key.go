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
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// Key implements Keys for a cluster without certificates. Each site creates its own key. The birth
// certificate consists of the site's role and public key. It proves that all transactions of an
// epoch were signed by the same site, but it does not prove the site's identity. All members of
// such a cluster are trusted.
type Key struct {
	Birth []byte
	Key   ed25519.PrivateKey
}

var _ Keys = (*Key)(nil)

// KeySuffix is appended to the name of the view's file to form the name of the file that contains
// the site's key.
const KeySuffix = ".key"

// KeyBirth is the prefix of the birth certificates that a Key provides. It distinguishes them from
// X.509 certificates, none of which begins with it.
const KeyBirth = "key "

// NewKey creates a Key, without storing it in a file.
func NewKey(role bourse.Role) (*Key, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "create a key: %w", err)
	}
	return KeyOf(role, key), nil
}

// KeyOf returns a Key with the given private key.
func KeyOf(role bourse.Role, key ed25519.PrivateKey) *Key {
	birth := append([]byte(KeyBirth+string(role)+" "), key.Public().(ed25519.PublicKey)...)
	return &Key{birth, key}
}

// LoadKey reads the key from the file at path. If the file is missing or invalid, LoadKey creates a
// new key and stores it at path, where only the current user can access it. Replacing a key does no
// harm: the site merely begins a new epoch.
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
	if err := wholefile.Write(path, []byte(hex.EncodeToString(k.Key.Seed())+"\n"), 0o600); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "store the view's key: %w", err)
	}
	return k, nil
}

// Own implements Keys.
func (k *Key) Own() ([]byte, crypto.Signer) { return k.Birth, k.Key }

// Author implements Keys. It accepts every well-formed key.
func (*Key) Author(birth []byte, _ time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	rest, ok := bytes.CutPrefix(birth, []byte(KeyBirth))
	role, key, whole := bytes.Cut(rest, []byte{' '})
	if !ok || !whole || len(key) != ed25519.PublicKeySize || bourse.WorkerID(role).Validate() != nil { // role names use the same alphabet as ids
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "the birth certificate does not contain a valid key")
	}
	return "", bourse.Role(role), ed25519.PublicKey(key), nil
}
