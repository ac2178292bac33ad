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

// Key implements Keys in a cluster without certificates. Each site creates its own key. The birth
// certificate consists of the site's role and public key. It proves that the same site has signed
// all transactions of an epoch, but not the site's identity. All members of such a cluster are
// trusted.
type Key struct {
	Birth []byte
	Key   ed25519.PrivateKey
}

var _ Keys = (*Key)(nil)

// KeySuffix is the suffix of the file that contains a site's key.
const KeySuffix = ".key"

// KeyBirth is the prefix of the birth certificates that a Key provides. No X.509
// certificate begins with this prefix.
const KeyBirth = "key "

// NewKey creates a key that is not stored in a file.
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

// LoadKey reads the key from the file at path. If the file is missing or invalid, LoadKey creates
// a key and stores it in a file that only the current user can access. The only effect of a
// replaced key is that a new epoch begins.
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

// Author implements Keys. It accepts every key.
func (*Key) Author(birth []byte, _ time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	rest, ok := bytes.CutPrefix(birth, []byte(KeyBirth))
	role, key, whole := bytes.Cut(rest, []byte{' '})
	if !ok || !whole || len(key) != ed25519.PublicKeySize || bourse.WorkerID(role).Validate() != nil { // role names use the same alphabet as ids
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "the birth certificate is not a key")
	}
	return "", bourse.Role(role), ed25519.PublicKey(key), nil
}
