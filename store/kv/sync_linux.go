package kv

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync waits until a file's bytes are on the disk.
func datasync(f *os.File) error {
	return retry(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// allocate reserves space on the disk for n bytes of a file, from at on. It fails
// when there is none.
func allocate(f *os.File, at, n int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, at, n) })
	if errors.Is(err, unix.EOPNOTSUPP) { // not every file system can
		return f.Truncate(at + n)
	}
	return err
}

// free returns how many bytes the disk of a directory has room for.
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
