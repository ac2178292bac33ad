// Package tempdir creates temporary directories for processes that may be killed. If a process is killed, the next
// process of the same program removes the directories that it left behind.
//
// A directory belongs to the processes that hold a lock on a file in it. The kernel releases the lock when they exit. A
// directory without that file is being created or belongs to another program. Such directories are not removed, and
// neither are other users' directories.
package tempdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the name of the lock file in each directory.
const lockName = ".owner"

// Dir is a directory that this process holds.
type Dir struct {
	Path string
	lock *os.File
}

// Make creates a directory in parent with a name that begins with prefix, and locks it.
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
		case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, fs.ErrNotExist): // removed by another process, to which it looked like a leftover
			continue
		}
		return nil, errors.Join(err, os.RemoveAll(path))
	}
}

// Hold acquires a shared lock on a directory that another process created and still holds.
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

// linked returns an error if the path of an open file no longer refers to that file.
func linked(f *os.File) error {
	current, err := os.Lstat(f.Name())
	if err != nil {
		return err
	}
	open, err := f.Stat()
	if err == nil && !os.SameFile(current, open) {
		err = fs.ErrNotExist
	}
	return err
}

// Release releases the lock without removing the directory.
func (d *Dir) Release() error { return d.lock.Close() }

// Remove removes the directory and its contents.
func (d *Dir) Remove() error { return errors.Join(os.RemoveAll(d.Path), d.lock.Close()) }

// RemoveLeftover removes the directories in parent whose names begin with prefix and that no
// process holds. It calls clean before it removes a directory, and keeps the directory if clean
// fails. It returns the paths of the removed directories.
func RemoveLeftover(parent, prefix string, clean func(path string) error) (removed []string, err error) {
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
		if err != nil { // in use, being created, or already removed
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

// own reports whether path is a directory that belongs to this user.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
