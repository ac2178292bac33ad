// Package build builds an app's image from its Dockerfile with a builder on this host,
// and pushes it to a registry.
//
// Every supported builder writes an archive, which package image/push pushes. Therefore, credentials, registries
// without TLS, and rejected pushes are handled in the same way for all builders, and Build can return the image's
// digest.
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

// Request describes a build.
type Request struct {
	Dir        string            // directory with the build context
	Dockerfile string            // path of the Dockerfile, relative to Dir unless it is absolute; "" means "Dockerfile"
	Ignorefile string            // ignore file, relative to Dir; "" means ".dockerignore", if it exists
	Target     string            // stage to build; "" means the last one
	Args       map[string]string // build arguments by name
	PushTo     string            // name of the image, as registry/repository[:tag]
	Builder    string            // one of Builders; "" means the first one that works on this host

	// How to access the registry. These fields have the same meaning as in [push.Request].
	Login    credentials.Login
	Config   string // path of docker's config.json
	Insecure bool
	Progress func(push.Progress) // called with the progress of the push; may be nil
}

// Dockerfile returns the path of the Dockerfile for a build in dir, and whether it exists. name is the value of
// [Request.Dockerfile].
func Dockerfile(dir, name string) (string, bool) {
	path := under(dir, cmp.Or(name, "Dockerfile"))
	info, err := os.Lstat(path) // does not follow symbolic links, unlike Check
	return path, err == nil && !info.IsDir()
}

// check returns an error if a file does not exist, or if a relative name leads outside r.Dir, directly or through a
// symbolic link. An absolute name may refer to any file, because the user typed it. Errors: not_found, invalid.
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
		return bourse.Errorf(bourse.CodeInvalid, "cannot use %s %s: the file must be below the configuration's directory, and so must the target of a symbolic link: %w", what, path, err)
	}
	return nil
}

// under joins dir and path, unless path is absolute.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Build builds an image, pushes it, and returns its name with the digest: "registry/repository:tag@sha256:…". The
// builder's output is written to out. When ctx is done, the builder is interrupted, and killed if it does not exit
// within a few seconds.
//
// Errors: failed_precondition if the host has no builder, not_found if there is no Dockerfile, invalid if the build
// fails, canceled if ctx is done, and those of [push.Push].
func Build(ctx context.Context, r Request, out io.Writer) (image string, err error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	b, err := find(ctx, r.Builder)
	if err != nil {
		return "", err
	}
	if _, err := tempdir.RemoveLeftover(os.TempDir(), tempPrefix, func(string) error { return nil }); err != nil {
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

// Check validates the parts of a request that do not depend on the builder: the files and the image's name. Build
// calls Check before it does anything else.
func (r Request) Check() error {
	if err := r.check("Dockerfile", cmp.Or(r.Dockerfile, "Dockerfile"), "use an existing image (--image), or name another file"); err != nil {
		return err
	}
	if r.PushTo == "" {
		return bourse.Errorf(bourse.CodeInvalid,
			"no name for the image: workers pull images from a registry, so set --push-to registry/name, or image under [build]")
	}
	if r.Ignorefile != "" {
		if err := r.check("ignore file", r.Ignorefile, "create it, or remove [build] ignorefile"); err != nil {
			return err
		}
	}
	return push.CheckName(r.PushTo)
}

// file returns the value of Request.Dockerfile, or its default.
func (j job) file() string { return cmp.Or(j.Dockerfile, "Dockerfile") }

// dockerfile returns the path of a Dockerfile that makes BuildKit use the requested ignore file. BuildKit prefers the
// ignore file that is next to the Dockerfile and has the Dockerfile's name plus ".dockerignore". Therefore, if an
// ignore file is requested, dockerfile copies both files to a temporary directory and names the copies accordingly.
func (j job) dockerfile() (string, error) {
	file := under(j.Dir, j.file())
	if j.Ignorefile == "" {
		return file, nil
	}
	dir := filepath.Join(j.temp, "dockerfile")
	copied := filepath.Join(dir, "Dockerfile")
	return copied, errors.Join(os.Mkdir(dir, 0o700), copyFile(copied, file), copyFile(copied+".dockerignore", under(j.Dir, j.Ignorefile)))
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
