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

// inRoot opens a directory of a root file system as a program in it would: links,
// absolute ones too, lead to where they would lead there and never outside.
func inRoot(root int, name string) (int, error) {
	return unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// writeFile writes a file of an order into the root file system at dir, with
// the directories above it. What is there under its name, a link say, is
// replaced and not followed. CodeInvalid when a directory is.
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

// makeDirs opens a directory of a root file system, and makes what of it is
// missing.
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
			// A link that leads nowhere is EEXIST here.
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

// replaceFile writes a file that is new: opening what an image has there could
// block, or do something.
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
	// Not os.File's Chmod: the mode may have the setuid bits.
	return errors.Join(err, unix.Fchmod(fd, f.Mode&0o7777), file.Close())
}

// isDir reports whether a root file system has a directory.
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
