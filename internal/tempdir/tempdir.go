// Package tempdir makes temporary directories for processes that may be killed:
// the next one removes what such a process has left behind.
//
// A directory belongs to the processes that hold a lock on a file in it, which the
// kernel releases when they end, however they do. One without that file is just being
// made, or is none of ours, and is left alone; so is that of another user.
package tempdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the file in a directory that its owners have locked.
const lockName = ".owner"

// Dir is a directory that this process holds.
type Dir struct {
	Path string
	lock *os.File
}

// Make makes a directory below parent whose name begins with prefix, and holds it.
func Make(parent, prefix string) (*Dir, error) {
	for {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, err
		}
		d, err := hold(path, syscall.LOCK_SH, os.O_CREATE)
		switch {
		case err == nil:
			return d, nil
		case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, fs.ErrNotExist): // taken for one that was left
			continue
		}
		return nil, errors.Join(err, os.RemoveAll(path))
	}
}

// Hold holds a directory that another process has made, and holds.
func Hold(path string) (*Dir, error) { return hold(path, syscall.LOCK_SH, 0) }

func hold(path string, how, flags int) (*Dir, error) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|syscall.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(lock.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		err = linked(lock)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Dir{Path: path, lock: lock}, nil
}

// linked returns an error when a file that was opened by its path has been removed
// since, with its directory.
func linked(f *os.File) error {
	there, err := os.Lstat(f.Name())
	if err != nil {
		return err
	}
	open, err := f.Stat()
	if err == nil && !os.SameFile(there, open) {
		err = fs.ErrNotExist
	}
	return err
}

// Release holds the directory no longer.
func (d *Dir) Release() error { return d.lock.Close() }

// Remove removes the directory with all that is in it.
func (d *Dir) Remove() error { return errors.Join(os.RemoveAll(d.Path), d.lock.Close()) }

// RemoveLeft removes the directories below parent whose names begin with prefix
// and that no process holds, and returns their paths. Before each, clean is called;
// one for which it fails stays.
func RemoveLeft(parent, prefix string, clean func(path string) error) (removed []string, err error) {
	found, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range found {
		if !own(path) {
			continue
		}
		d, err := hold(path, syscall.LOCK_EX, 0)
		if err != nil { // held, being made, or gone
			continue
		}
		if err = clean(path); err == nil {
			err = os.RemoveAll(path)
		}
		if err == nil {
			removed = append(removed, path)
		}
		errs = append(errs, err, d.Release())
	}
	return removed, errors.Join(errs...)
}

// own reports whether a path is a directory of this user.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
