package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// keyLine is the prefix of each line in a key file.
const keyLine = "bourse-secrets-key"

const (
	keySize  = bourse.AppKeySize
	maxBytes = 1 << 16 // maximum size of a key file in bytes
)

// Keys contains the keys in a broker's key file. The first key encrypts.
type Keys struct{ all [][]byte }

// Generate creates a random key and returns it as a line of a key file.
func Generate() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // crypto/rand never fails
	return []byte(keyLine + " " + base64.StdEncoding.EncodeToString(key) + "\n")
}

// Load reads a key file. It refuses a file that users other than its owner can read. Errors:
// invalid.
func Load(path string) (*Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the secrets keys: %w", err)
	}
	defer func() { _ = f.Close() }() // Close cannot lose data, because the file is only read
	info, err := f.Stat()
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the secrets keys: %w", err)
	}
	if err := private(info); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the secrets keys: %s: %w", path, err)
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the secrets keys: %w", err)
	}
	k, err := Read(text)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the secrets keys: %s: %w", path, err)
	}
	return k, nil
}

// private returns an error unless info describes a regular file that is not too long and that other
// users cannot read.
func private(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return errors.New("other users can read it: run chmod 600 on it")
	case info.Size() > maxBytes:
		return errors.New("it is too long for a key file")
	}
	return nil
}

// Read parses the text of a key file, which contains one key per line. The first key encrypts.
// Empty lines and lines that begin with # are ignored. Errors: invalid. Errors do not contain any
// part of the text.
func Read(text []byte) (*Keys, error) {
	k, n := &Keys{}, 0
	for l := range bytes.Lines(text) {
		n++
		l = bytes.TrimSpace(l)
		if len(l) == 0 || l[0] == '#' {
			continue
		}
		word, encoded, _ := strings.Cut(string(l), " ")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || word != keyLine || len(key) != keySize {
			return nil, bourse.Errorf(bourse.CodeInvalid, "line %d is not a key: want %s and 32 bytes in base64", n, keyLine)
		}
		k.all = append(k.all, key)
	}
	switch {
	case len(k.all) == 0:
		return nil, bourse.Errorf(bourse.CodeInvalid, "it does not contain a key: run bourse credentials init to create one")
	case len(k.all) > bourse.MaxAppKeys:
		return nil, bourse.Errorf(bourse.CodeInvalid, "it contains %d keys, but at most %d are allowed", len(k.all), bourse.MaxAppKeys)
	}
	return k, nil
}

// OfApp derives the keys for an app's secrets from the file's keys, in the same order.
func (k *Keys) OfApp(app string) bourse.AppKeys {
	out := make(bourse.AppKeys, 0, len(k.all)*keySize)
	for _, key := range k.all {
		out = append(out, derive(key, "bourse app secrets\x00"+app)...)
	}
	return out
}

// derive derives a key for one purpose.
func derive(key []byte, purpose string) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, purpose, keySize)
	if err != nil {
		panic(err) // the lengths are valid constants
	}
	return out
}

// IDs returns the ids of the keys, in the order of the file. An id does not reveal anything about
// its key.
func (k *Keys) IDs() []string {
	ids := make([]string, len(k.all))
	for i, key := range k.all {
		ids[i] = hex.EncodeToString(idOf(key))
	}
	return ids
}

// Latest reports whether an app's secret was sealed with the first key.
func (k *Keys) Latest(app string, sealed []byte) bool {
	return len(sealed) > idSize && bytes.Equal(sealed[1:1+idSize], idOf(k.OfApp(app)[:keySize]))
}

// idOf returns the id of a key. The id does not reveal anything about the key.
func idOf(key []byte) []byte {
	sum := sha256.Sum256(slices.Concat([]byte("bourse key id\x00"), key))
	return sum[:idSize]
}
