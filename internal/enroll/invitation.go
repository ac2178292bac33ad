package enroll

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"hash/crc32"
	"net"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Fingerprint identifies a CA: the SHA-256 digest of its certificate.
type Fingerprint [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (f Fingerprint) MarshalText() ([]byte, error) {
	return []byte(base64.RawURLEncoding.EncodeToString(f[:])), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	data, err := base64.RawURLEncoding.Strict().DecodeString(string(text))
	if err != nil || len(data) != len(f) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid fingerprint")
	}
	copy(f[:], data)
	return nil
}

// FingerprintOf returns the fingerprint of the first certificate in a PEM text. Errors: invalid.
func FingerprintOf(ca []byte) (Fingerprint, error) {
	block, _ := pem.Decode(ca)
	if block == nil || block.Type != "CERTIFICATE" {
		return Fingerprint{}, bourse.Errorf(bourse.CodeInvalid, "the CA file does not contain a PEM certificate")
	}
	return sha256.Sum256(block.Bytes), nil
}

// find returns the certificate that f identifies, in PEM, or nil if the bundle does not
// contain it.
func (f Fingerprint) find(bundle []byte) []byte {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" && sha256.Sum256(block.Bytes) == f {
			return pem.EncodeToMemory(block)
		}
	}
	return nil
}

// Invitation is the content of a join token.
type Invitation struct {
	Addresses []string    `json:"a"` // host:port of the API of the broker that created the invitation and counts its uses
	CA        Fingerprint `json:"c"`
	ID        string      `json:"i"`
	Secret    string      `json:"s"`
}

// prefix makes a join token recognizable to people and to scanners for leaked secrets.
const prefix = "bourse-join-"

// maxText limits the length of a join token, in bytes.
const maxText = 4096

// String returns the join token. The token ends with a checksum, so that a mistyped token is not
// mistaken for a token of another cluster.
func (v Invitation) String() string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: all fields can be encoded
	}
	data = binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data))
	return prefix + base64.RawURLEncoding.EncodeToString(data)
}

// Parse parses a join token. Errors: invalid. The error's message does not contain any part of the
// token.
func Parse(text string) (Invitation, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ok || len(encoded) > maxText {
		return Invitation{}, bourse.Errorf(bourse.CodeInvalid, "this is not a join token, which begins with %s", prefix)
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(data) < crc32.Size {
		return Invitation{}, errDamaged()
	}
	data, sum := data[:len(data)-crc32.Size], data[len(data)-crc32.Size:]
	if binary.BigEndian.Uint32(sum) != crc32.ChecksumIEEE(data) {
		return Invitation{}, errDamaged()
	}
	var v Invitation
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.ID == "" || v.Secret == "" || len(v.Addresses) == 0 || slices.ContainsFunc(v.Addresses, invalidAddress) {
		return Invitation{}, errDamaged()
	}
	return v, nil
}

func invalidAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err != nil || host == "" || port == ""
}

func errDamaged() error {
	return bourse.Errorf(bourse.CodeInvalid, "the join token is incomplete or was changed: copy it again")
}
