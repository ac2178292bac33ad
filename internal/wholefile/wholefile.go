// Package wholefile replaces small files as a whole.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write creates or replaces a file atomically: readers see either the old or the new contents, even
// after a host crash. When Write returns nil, the new contents are on disk. If Write returns an
// error, the old file is usually unchanged. However, if the error occurred after the file was
// replaced, the new contents are in place, and a crash of the host may restore the old contents.
func Write(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // this fails once the file has been renamed
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
