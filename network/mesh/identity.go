package mesh

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"filippo.io/edwards25519"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// Identity is a worker's key for the mesh: an Ed25519 key that the worker uses to sign its ID. The key's X25519 form
// (RFC 7748, section 4.1) is the worker's WireGuard key.
type Identity struct{ key ed25519.PrivateKey }

// NewIdentity derives an identity from a seed of 32 random bytes.
func NewIdentity(seed [ed25519.SeedSize]byte) Identity {
	return Identity{ed25519.NewKeyFromSeed(seed[:])}
}

// LoadIdentity reads an identity from a file. If the file does not exist, LoadIdentity creates a new identity and
// writes it to the file. It returns CodeInvalid if the file does not contain an identity.
func LoadIdentity(path string) (Identity, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return Identity{}, err
		}
		return Identity{key}, wholefile.Write(path, []byte(hex.EncodeToString(key.Seed())+"\n"), 0o600)
	}
	if err != nil {
		return Identity{}, err
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return Identity{}, bourse.Errorf(bourse.CodeInvalid, "%s does not contain a mesh key: remove the file, and the worker creates a new one", path)
	}
	return NewIdentity([ed25519.SeedSize]byte(seed)), nil
}

// Announce returns the facts that other workers need to connect to the worker: its key, the proof that it owns the key,
// and its endpoint, which may be the zero value.
func (i Identity) Announce(worker bourse.WorkerID, endpoint netip.AddrPort) *bourse.Mesh {
	return &bourse.Mesh{Key: i.key[ed25519.SeedSize:], Proof: ed25519.Sign(i.key, statement(worker)), Endpoint: endpoint}
}

// private returns the private WireGuard key. WireGuard itself clears and sets bits of the key as RFC 7748 requires.
func (i Identity) private() wgtypes.Key {
	sum := sha512.Sum512(i.key.Seed())
	return wgtypes.Key(sum[:wgtypes.KeyLen])
}

// statement returns the message that a worker signs to prove that it owns its key.
func statement(worker bourse.WorkerID) []byte {
	return []byte("bourse mesh key\x00" + string(worker))
}

// KeyOf returns the WireGuard key that a worker has announced. It returns false if the worker has not proved that it
// owns the key.
func KeyOf(worker bourse.WorkerID, m *bourse.Mesh) (wgtypes.Key, bool) {
	if m == nil || len(m.Key) != ed25519.PublicKeySize || !ed25519.Verify(m.Key, statement(worker), m.Proof) {
		return wgtypes.Key{}, false
	}
	point, err := new(edwards25519.Point).SetBytes(m.Key)
	if err != nil {
		return wgtypes.Key{}, false
	}
	key := wgtypes.Key(point.BytesMontgomery())
	return key, key != wgtypes.Key{}
}
