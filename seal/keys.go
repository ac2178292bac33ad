package seal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/bourse-dev/bourse"
)

// What lines of files of keys begin with.
const (
	privateLine = "bourse-secrets-key"    // and the private half
	publicLine  = "bourse-secrets-public" // and the public half, and the key of digests
)

const (
	keySize  = 32
	maxKeys  = 64
	maxBytes = 1 << 16 // of a file of keys
)

// Keys is what a file of keys holds.
type Keys struct {
	Sealer *Sealer // of the first line
	Opener *Opener // nil: the file has public halves alone
}

// Generate makes a key. private is the line for workers, public the one for
// brokers.
func Generate() (private, public []byte, err error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "make a key: %w", err)
	}
	digest, err := digestKey(key.Bytes())
	if err != nil {
		return nil, nil, err
	}
	return line(privateLine, key.Bytes()), line(publicLine, append(key.PublicKey().Bytes(), digest...)), nil
}

func line(word string, b []byte) []byte {
	return []byte(word + " " + base64.StdEncoding.EncodeToString(b) + "\n")
}

// digestKey derives the key of digests, so that both halves have the same one.
func digestKey(private []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, private, nil, "bourse secrets digest", keySize)
}

// Load reads a file of keys, which no one but its owner may read. Codes: invalid.
func Load(path string) (Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "--secrets-key: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "--secrets-key: %w", err)
	}
	if err := private(info); err != nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "--secrets-key %s: %w", path, err)
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "--secrets-key: %w", err)
	}
	k, err := Read(text)
	if err != nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "--secrets-key %s: %w", path, err)
	}
	return k, nil
}

// private reports an error for a file that others may read.
func private(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case info.Mode().Perm()&0o077 != 0:
		return errors.New("others may read it: chmod 600 it")
	case info.Size() > maxBytes:
		return errors.New("it is too long for a file of keys")
	}
	return nil
}

// Read reads the text of a file of keys: one a line, the one that seals first.
// Empty lines and those that begin with # are nothing. Codes: invalid. Errors
// show nothing of the text.
func Read(text []byte) (Keys, error) {
	var k Keys
	n := 0
	for l := range bytes.Lines(text) {
		if n++; n > maxKeys {
			return Keys{}, bourse.Errorf(bourse.CodeInvalid, "more than %d lines", maxKeys)
		}
		l = bytes.TrimSpace(l)
		if len(l) == 0 || l[0] == '#' {
			continue
		}
		if err := k.add(string(l)); err != nil {
			return Keys{}, bourse.Errorf(bourse.CodeInvalid, "line %d: %w", n, err)
		}
	}
	if k.Sealer == nil {
		return Keys{}, bourse.Errorf(bourse.CodeInvalid, "there is no key in it: bourse credentials init makes one")
	}
	return k, nil
}

var errNoKey = errors.New("it is no key: want " + privateLine + " or " + publicLine + ", and base64")

// add takes in a line.
func (k *Keys) add(text string) error {
	word, encoded, _ := strings.Cut(text, " ")
	b, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return errNoKey
	case word == privateLine && len(b) == keySize:
		return k.addPrivate(b)
	case word == publicLine && len(b) == 2*keySize:
		public, err := ecdh.X25519().NewPublicKey(b[:keySize])
		if err != nil {
			return errNoKey
		}
		return k.seals(public, b[keySize:])
	}
	return errNoKey
}

func (k *Keys) addPrivate(b []byte) error {
	key, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		return errNoKey
	}
	digest, err := digestKey(b)
	if err != nil {
		return err
	}
	if err := k.seals(key.PublicKey(), digest); err != nil {
		return err
	}
	opens, err := hpke.NewDHKEMPrivateKey(key)
	if err != nil {
		return errNoKey
	}
	if k.Opener == nil {
		k.Opener = &Opener{keys: map[[idSize]byte]hpke.PrivateKey{}}
	}
	k.Opener.keys[idOf(key.PublicKey())] = opens
	return nil
}

// seals notes the key that seals, if it is the first.
func (k *Keys) seals(public *ecdh.PublicKey, digest []byte) error {
	key, err := hpke.NewDHKEMPublicKey(public)
	if err != nil {
		return errNoKey
	}
	if k.Sealer == nil {
		id := idOf(public)
		k.Sealer = &Sealer{id: id[:], public: key, digest: digest}
	}
	return nil
}

func idOf(public *ecdh.PublicKey) [idSize]byte {
	sum := sha256.Sum256(public.Bytes())
	return [idSize]byte(sum[:idSize])
}
