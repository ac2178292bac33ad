package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse"
)

// Encrypted volumes are LUKS2 images that cryptsetup opens through dm-crypt. A snapshot is a copy
// of the encrypted bytes. A volume that is filled from another volume or a snapshot also starts as
// such a copy, and then gets its own key. The volumes' keys are the images' LUKS passphrases.
// Because these keys cannot be guessed, a fast key derivation function is sufficient.

const luksMagic = "LUKS\xba\xbe"

var fastKDFArgs = []string{"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"}

func luksFormatArgs(image, uuid string) []string {
	return append([]string{
		"cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--cipher", "aes-xts-plain64", "--key-size", "512",
		"--sector-size", "4096", "--uuid", uuid, "--key-file", "-", image,
	}, fastKDFArgs...)
}

func luksOpenArgs(device, name string) []string {
	return []string{"cryptsetup", "open", "--type", "luks2", "--allow-discards", "--key-file", "-", device, name}
}

func luksTestArgs(image string) []string {
	return []string{"cryptsetup", "open", "--test-passphrase", "--type", "luks2", "--key-file", "-", image}
}

// luksRekeyArgs returns the command that replaces the key of an image. The command reads the old
// key from stdin.
func luksRekeyArgs(image, newKeyFile string) []string {
	return append([]string{"cryptsetup", "luksChangeKey", "--batch-mode", "--key-file", "-", image, newKeyFile}, fastKDFArgs...)
}

func luksResizeArgs(name string) []string {
	return []string{"cryptsetup", "resize", "--key-file", "-", name}
}

func luksCloseArgs(name string) []string { return []string{"cryptsetup", "close", name} }

const mapperPrefix = "bourse-"

// mapperPath returns the path of the device to which an encrypted volume is mapped.
func mapperPath(id string) string { return "/dev/mapper/" + mapperPrefix + id }

// encrypted reports whether the image is encrypted.
func encrypted(image io.ReaderAt) (bool, error) {
	b := make([]byte, len(luksMagic))
	if _, err := image.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(b) == luksMagic, nil
}

// mayEncrypt returns CodeFailedPrecondition if the host does not support encrypted volumes.
func (s *Store) mayEncrypt() error {
	if s.crypt {
		return nil
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "this host cannot encrypt volumes: dm-crypt, cryptsetup or the key is missing")
}

// keyOf returns the key that opens the image of an object in the given stage. If there is a key
// file next to the image, it names the volume whose key opens the image. Otherwise, the object is a
// volume, and its own key opens the image.
func (s *Store) keyOf(id string, at stage) ([]byte, error) {
	owner := bourse.VolumeID(id)
	switch b, err := os.ReadFile(s.path(id, at, keyFile)); {
	case err == nil:
		owner = bourse.VolumeID(b)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, failed(err, "read the key file of %s", id)
	}
	if err := owner.Validate(); err != nil {
		return nil, damaged(id, "its key file does not name a volume")
	}
	key, err := s.key(owner)
	return key, failed(err, "key of %s", id)
}

// openCrypt maps the encrypted volume on a device and returns the path of the mapped device.
func (s *Store) openCrypt(ctx context.Context, id, device string) (string, error) {
	if err := s.mayEncrypt(); err != nil {
		return "", err
	}
	if _, err := os.Stat(mapperPath(id)); err == nil {
		return mapperPath(id), nil
	}
	key, err := s.keyOf(id, stageComplete)
	if err != nil {
		return "", err
	}
	return mapperPath(id), failed(run(ctx, key, luksOpenArgs(device, mapperPrefix+id)), "open the encrypted %s", id)
}

// closeCrypt removes the mapping of a volume if there is one.
func closeCrypt(ctx context.Context, id string) error {
	if _, err := os.Stat(mapperPath(id)); err != nil {
		return nil //nolint:nilerr // not mapped
	}
	return failed(run(ctx, nil, luksCloseArgs(mapperPrefix+id), 4), "close the encrypted %s", id) // exit code 4 means that the volume is not mapped
}

// rekey changes the key that opens an image, from old to the key of volume id. It may be repeated
// after a crash.
func (s *Store) rekey(ctx context.Context, id string, at stage, old []byte) error {
	key, err := s.key(bourse.VolumeID(id))
	if err != nil {
		return failed(err, "key of %s", id)
	}
	image := s.path(id, at, imageFile)
	if run(ctx, key, luksTestArgs(image)) == nil {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = w.Write(key) // does not block, because a key fits into a pipe's buffer
	err = errors.Join(err, w.Close())
	if err == nil {
		err = runWith(ctx, old, []*os.File{r}, luksRekeyArgs(image, "/proc/self/fd/3"))
	}
	return failed(errors.Join(err, r.Close()), "change the key of %s", id)
}
