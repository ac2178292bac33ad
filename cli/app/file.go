package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// file describes a file to create.
type file struct {
	Name   string `json:"file"` // path of the file, including its directory
	For    string `json:"for"`
	secret bool   // readable only by its owner
	data   []byte
}

// create creates all of the files, or none if one of them cannot be created. It never
// overwrites a file, because a lost CA key cannot be recovered.
func create(dir string, files []file) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	for i := range files {
		if _, err := os.Lstat(filepath.Join(dir, files[i].Name)); err == nil {
			return exists(filepath.Join(dir, files[i].Name))
		}
	}
	for i := range files {
		files[i].Name = filepath.Join(dir, files[i].Name)
		if err := files[i].create(); err != nil {
			for _, made := range files[:i] {
				_ = os.Remove(made.Name) // cleanup is best effort; err is reported
			}
			return err
		}
	}
	return nil
}

func (f *file) create() error {
	mode := fs.FileMode(0o644)
	if f.secret {
		mode = 0o600
	}
	w, err := os.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) { // created by another process after the check above
		return exists(f.Name)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	_, err = w.Write(f.data)
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", f.Name, err), os.Remove(f.Name))
	}
	return nil
}

func exists(name string) error {
	return cli.Hint(bourse.Errorf(bourse.CodeAlreadyExists, "%s already exists", name),
		"another --dir")
}

// show lists the created files and their purposes.
func show(s *cli.Shell, files []file) error {
	t := cli.NewTable("FILE", "FOR")
	return cli.PrintList(s, files, "", t, func(f *file) []string { return []string{cli.Clean(f.Name), f.For} })
}
