package kv

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync waits until a file's data is on the disk.
func datasync(f *os.File) error {
	return retry(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// allocate reserves disk space for the n bytes of a file that begin at offset at. It fails if there
// is not enough space.
func allocate(f *os.File, at, n int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, at, n) })
	if errors.Is(err, unix.EOPNOTSUPP) { // not every file system supports this
		return f.Truncate(at + n)
	}
	return err
}

// free returns the number of free bytes on the disk that contains a directory.
func free(dir string) (int64, error) {
	var s unix.Statfs_t
	err := retry(func() error { return unix.Statfs(dir, &s) })
	return int64(s.Bavail) * s.Bsize, err //nolint:gosec // no disk is that large
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // an errno, never wrapped
			return err
		}
	}
}
