package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/credentials"
	"github.com/bourse-dev/bourse/image/push"
	"github.com/bourse-dev/bourse/internal/tempdir"
)

// Request is what is built, and what becomes of it.
type Request struct {
	Dir        string            // the context: the directory whose files the Dockerfile may copy
	Dockerfile string            // its path, relative to Dir when it is not absolute; "": "Dockerfile"
	Ignorefile string            // what of Dir is left out, relative to Dir; "": ".dockerignore", if it is there
	Target     string            // the stage to build; "": the last
	Args       map[string]string // ARGs by name
	PushTo     string            // the name of the result: registry/repository[:tag]
	Builder    string            // one of Builders; "": the first of them that works here

	// Of the registry; as in package push.
	Login    credentials.Login
	Config   string // path of docker's config.json
	Insecure bool
	Progress func(push.Progress) // optional
}

// Dockerfile returns the path of the Dockerfile that a build in dir would use, and whether
// it exists. name is as [Request.Dockerfile].
func Dockerfile(dir, name string) (string, bool) {
	path := under(dir, cmp.Or(name, "Dockerfile"))
	info, err := os.Lstat(path) // Check looks at where a symbolic link leads
	return path, err == nil && !info.IsDir()
}

// check returns an error if a file to read does not exist, or if its relative name leads
// out of the directory, directly or by a symbolic link. An absolute name is what the
// user typed. Codes: not_found, invalid.
func (r Request) check(what, name, hint string) error {
	path := under(r.Dir, name)
	info, err := os.Stat(path)
	if !filepath.IsAbs(name) {
		var root *os.Root
		if root, err = os.OpenRoot(r.Dir); err != nil {
			return err
		}
		defer root.Close()
		info, err = root.Stat(name)
	}
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return bourse.Errorf(bourse.CodeNotFound, "no %s at %s: %s", what, path, hint)
	case err != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s %s is not used: it must be below the directory of the configuration, links included: %w", what, path, err)
	}
	return nil
}

// under returns a path that is relative to dir when it is not absolute.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Build builds an image, pushes it, and returns its name with its digest:
// "registry/repository:tag@sha256:…". What the builder prints goes to out as it comes.
//
// The error is [bourse.CodeFailedPrecondition] when the host has no builder, and says what to do;
// CodeNotFound without a Dockerfile; CodeInvalid when the build fails; else those of [push.Push].
// When ctx ends the builder is interrupted, and after some seconds killed.
func Build(ctx context.Context, r Request, out io.Writer) (image string, err error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	b, err := find(ctx, r.Builder)
	if err != nil {
		return "", err
	}
	if _, err := tempdir.RemoveLeft(os.TempDir(), tempPrefix, func(string) error { return nil }); err != nil {
		return "", err
	}
	dir, err := tempdir.Make(os.TempDir(), tempPrefix)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	archive := filepath.Join(dir.Path, "image.tar")
	fmt.Fprintf(out, "building %s with %s\n", r.PushTo, b.name)
	if err := b.build(ctx, job{Request: r, temp: dir.Path, archive: archive, out: out}); err != nil {
		return "", err
	}
	return push.Push(ctx, push.Request{
		Archive: archive, Name: r.PushTo, Temp: dir.Path,
		Login: r.Login, Config: r.Config, Insecure: r.Insecure, Progress: r.Progress,
	})
}

const tempPrefix = "bourse-build-"

// Check looks at what can be told without a builder: whether the files are there, and the
// name. Build does so first.
func (r Request) Check() error {
	if err := r.check("Dockerfile", cmp.Or(r.Dockerfile, "Dockerfile"), "name an image that is built already (--image), or another file"); err != nil {
		return err
	}
	if r.PushTo == "" {
		return bourse.Errorf(bourse.CodeInvalid,
			"where is the image to be pushed? Workers fetch it from a registry: name one with --push-to registry/name, or as [build] image")
	}
	if r.Ignorefile != "" {
		if err := r.check("ignore file", r.Ignorefile, "create it, or remove [build] ignorefile"); err != nil {
			return err
		}
	}
	return push.CheckName(r.PushTo)
}
