package volume

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

const (
	masterBytes = 32
	keyBytes    = 64
)

// KeyFile returns a function for Config.Key. The function derives keys (HKDF, RFC 5869) from the
// secret in the file at path. KeyFile creates the file if it does not exist. An existing file
// must contain exactly 32 bytes. If the file is lost, encrypted volumes cannot be opened.
func KeyFile(path string) (func(bourse.VolumeID) ([]byte, error), error) {
	master, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		master, err = makeKeyFile(path)
	}
	if err != nil {
		return nil, failed(err, "read the volume key file")
	}
	if len(master) != masterBytes {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the volume key file has %d bytes, want %d", len(master), masterBytes)
	}
	return func(id bourse.VolumeID) ([]byte, error) {
		return hkdf.Key(sha256.New, master, nil, "bourse volume "+string(id), keyBytes)
	}, nil
}

// makeKeyFile writes a new secret to a temporary file and links that file to path. Linking
// never overwrites an existing file.
func makeKeyFile(path string) ([]byte, error) {
	master := make([]byte, masterBytes)
	_, _ = rand.Read(master) // crypto/rand never fails
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".key-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // by then, path is another link to the file
	_, err = f.Write(master)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
