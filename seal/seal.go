package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/hex"

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

const (
	version = 1 // first byte of what is sealed
	idSize  = 8 // of a key: the beginning of the SHA-256 of its public half
	encSize = 32
	tagSize = 16

	// Overhead is how much longer a value is when it is sealed.
	Overhead = 1 + idSize + encSize + tagSize
)

// suite is HPKE (RFC 9180) in its base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305.
func suite() (hpke.KDF, hpke.AEAD) { return hpke.HKDFSHA256(), hpke.ChaCha20Poly1305() }

// Sealer seals. It cannot open.
type Sealer struct {
	id     []byte
	public hpke.PublicKey
	digest []byte // key of digests
}

// Seal seals a value for its place.
func (s *Sealer) Seal(p Place, value []byte) ([]byte, error) {
	kdf, aead := suite()
	box, err := hpke.Seal(s.public, kdf, aead, p.bytes(), value)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "seal: %w", err)
	}
	return append(append([]byte{version}, s.id...), box...), nil
}

// Digest returns a short text that is the same for the same value at the same
// place, and tells no one without the key whether a guess of the value is right.
func (s *Sealer) Digest(p Place, value []byte) string {
	mac := hmac.New(sha256.New, s.digest)
	mac.Write(p.bytes())
	mac.Write([]byte{0})
	mac.Write(value)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Opener opens what was sealed with any of its keys.
type Opener struct {
	keys map[[idSize]byte]hpke.PrivateKey
}

// Open returns a value that was sealed for a place. Codes: failed_precondition
// (it was sealed with another key), invalid (it was never sealed for this place).
func (o *Opener) Open(p Place, sealed []byte) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version {
		return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s is not sealed as this release seals", bourse.Quoted(p.Name))
	}
	key, ok := o.keys[[idSize]byte(sealed[1:1+idSize])]
	if !ok {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "secret %s was sealed with a key that this worker's --secrets-key does not have", bourse.Quoted(p.Name))
	}
	kdf, aead := suite()
	value, err := hpke.Open(key, kdf, aead, p.bytes(), bytes.Clone(sealed[1+idSize:]))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "secret %s does not open: it was sealed for another place, or changed", bourse.Quoted(p.Name))
	}
	return value, nil
}
