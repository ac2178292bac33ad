package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// inRoot opens a directory in a root file system. It resolves links, including absolute ones,
// within the root, as the kernel does for programs in the container.
func inRoot(root int, name string) (int, error) {
	return unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// writeFile writes f into the root file system at dir, creating missing parent directories. It
// replaces an existing file or link. It returns CodeInvalid if the path is a directory.
func writeFile(dir string, f driver.File) error {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(root)
	name := path.Clean("/" + f.Path)
	parent, err := makeDirs(root, path.Dir(name))
	if err == nil {
		err = replaceFile(parent, path.Base(name), f)
		_ = unix.Close(parent)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return bourse.Errorf(bourse.CodeInsufficient, "file %s: %w", bourse.Quoted(f.Path), err)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENAMETOOLONG):
		return bourse.Errorf(bourse.CodeInvalid, "file %s cannot be written: %w", bourse.Quoted(f.Path), err)
	}
	return fmt.Errorf("write file %s: %w", f.Path, err)
}

// makeDirs opens a directory in a root file system, creating it and its parents if they do not
// exist.
func makeDirs(root int, dir string) (int, error) {
	at, err := inRoot(root, "/")
	if err != nil {
		return -1, err
	}
	done := "/"
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if name == "" {
			continue
		}
		done = path.Join(done, name)
		next, err := inRoot(root, done)
		if errors.Is(err, unix.ENOENT) {
			// If name is a dangling link, Mkdirat returns EEXIST.
			if err = unix.Mkdirat(at, name, 0o755); err == nil {
				next, err = inRoot(root, done)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// replaceFile removes the file with the given name, if there is one, and creates a new file. It
// does not write to the existing file, because opening a FIFO or device could block or have side
// effects.
func replaceFile(dir int, name string, f driver.File) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.Write(f.Data)
	// Do not use os.File.Chmod, which would ignore a Unix mode's setuid, setgid and sticky bits.
	return errors.Join(err, unix.Fchmod(fd, f.Mode&0o7777), file.Close())
}

// isDir reports whether name is a directory in the root file system at dir.
func isDir(dir, name string) bool {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(root)
	fd, err := inRoot(root, name)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
