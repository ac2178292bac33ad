package push

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/log"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// limits contains the limits on an archive's contents.
type limits struct {
	bytes   int64 // maximum total size of the files in bytes
	entries int   // maximum number of files, directories and links, and also of descriptors that are visited
}

// defaultLimits are far higher than any real image needs.
var defaultLimits = limits{bytes: 64 << 30, entries: 10_000}

// maxManifest is the maximum size of a manifest or index in bytes. Registries have similar limits.
const maxManifest = 4 << 20

// unpacked contains the files of an archive. Each file is stored under its computed digest.
type unpacked struct {
	content.Store
	index ocispec.Descriptor
}

// unpack copies the archive at path to dir. The paths of the copied files do not depend on the names in the archive.
func unpack(ctx context.Context, path, dir string, bound limits) (unpacked, error) {
	// Disable containerd's global logger, which would otherwise report that the file system does not support fs-verity.
	if err := log.SetLevel(log.PanicLevel); err != nil {
		return unpacked{}, err
	}
	store, err := local.NewStore(filepath.Join(dir, "content"))
	if err != nil {
		return unpacked{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return unpacked{}, bourse.Errorf(bourse.CodeNotFound, "%w", err)
	}
	read := fromTar
	switch {
	case info.IsDir():
		read = fromLayout
	case !info.Mode().IsRegular():
		return unpacked{}, invalid("neither a file nor a directory")
	}
	index, err := read(ctx, path, store, bound)
	if err != nil {
		return unpacked{}, err
	}
	return unpacked{store, index}, nil
}

// fromTar reads the tar file at path.
func fromTar(ctx context.Context, path string, store content.Store, bound limits) (ocispec.Descriptor, error) {
	f, err := os.Open(path)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer func() { _ = f.Close() }()
	if err := checkTar(f, bound); err != nil {
		return ocispec.Descriptor{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return ocispec.Descriptor{}, err
	}
	return load(ctx, f, store)
}

// load reads the tar file r. It compresses the layers of an archive in docker's format.
func load(ctx context.Context, r io.Reader, store content.Store) (ocispec.Descriptor, error) {
	index, err := archive.ImportIndex(ctx, store, contextReader{ctx, r}, archive.WithImportCompression())
	switch {
	case err == nil:
		return index, nil
	case ctx.Err() != nil:
		return index, context.Cause(ctx)
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // the error is from this host's disk, not from the archive
		return index, err
	}
	return index, invalid("%w", err)
}

// contextReader is a reader that fails once its context is done.
type contextReader struct {
	ctx context.Context //nolint:containedctx // the reader lives for one call
	r   io.Reader
}

// Read implements [io.Reader].
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// compressions contains the first bytes of compressed files, one entry for each supported format.
var compressions = map[string]string{"gzip": "\x1f\x8b", "zstd": "\x28\xb5\x2f\xfd", "bzip2": "BZh", "xz": "\xfd7zXZ"}

// checkTar checks all headers of a tar file before any contents are stored, because even in a small file, the headers
// can declare contents of any size.
func checkTar(f *os.File, bound limits) error {
	head := make([]byte, 8)
	n, _ := f.ReadAt(head, 0) // a file that is too short is detected below
	for name, magic := range compressions {
		if strings.HasPrefix(string(head[:n]), magic) {
			return invalid("compressed with %s: decompress it first", name)
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	bound.bytes = min(bound.bytes, info.Size()) // only a sparse or truncated archive can exceed this limit
	s := &sums{bound: bound}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && s.entries > 0:
			return nil
		case errors.Is(err, io.EOF):
			return invalid("empty")
		case err != nil:
			return invalid("not a tar file: %w", err)
		}
		if err := s.add(h.Name, h.Size); err != nil {
			return err
		}
	}
}

// sums contains the number and total size of the archive entries that have been checked so far.
type sums struct {
	bound   limits
	entries int
	bytes   int64
}

// add counts an entry. It returns an error if the entry exceeds a limit or its name leads out of the archive.
func (s *sums) add(name string, size int64) error {
	s.entries++
	s.bytes += size
	switch {
	case s.entries > s.bound.entries:
		return invalid("more than %d entries", s.bound.entries)
	case size < 0 || s.bytes < 0 || s.bytes > s.bound.bytes:
		return invalid("the declared sizes of its files exceed %d bytes", s.bound.bytes)
	case !filepath.IsLocal(name):
		return invalid("file %s is outside of the archive", bourse.Quoted(name))
	}
	return nil
}

// fromLayout reads an image from the directory at path, which contains the same files as an archive.
func fromLayout(ctx context.Context, path string, store content.Store, bound limits) (ocispec.Descriptor, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer func() { _ = root.Close() }()
	if err := checkLayout(root.FS(), bound); err != nil {
		return ocispec.Descriptor{}, err
	}
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		t := tar.NewWriter(w)
		err := errors.Join(t.AddFS(root.FS()), t.Close())
		_ = w.CloseWithError(err) // never fails
		sent <- err
	}()
	index, err := load(ctx, r, store)
	_ = r.Close() // never fails; stops the writer
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
		return index, sendErr
	}
	return index, err
}

// checkLayout checks the names, types and sizes of all files in a directory before any of them is read.
func checkLayout(dir fs.FS, bound limits) error {
	s := &sums{bound: bound}
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return s.add(name, 0)
		case !info.Mode().IsRegular():
			return invalid("%s is not a regular file", bourse.Quoted(name))
		}
		return s.add(name, info.Size())
	})
	if err == nil && s.entries == 0 {
		return invalid("empty")
	}
	return err
}

// invalid returns an error that describes an invalid archive.
func invalid(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeInvalid, "invalid image archive: %w", fmt.Errorf(format, args...))
}
