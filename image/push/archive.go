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

// limits bound what an archive may make this host do.
type limits struct {
	bytes   int64 // of its files together
	entries int   // files, directories and links; also descriptors that are followed
}

// usual is far above any image that is used.
var usual = limits{bytes: 64 << 30, entries: 10_000}

// maxManifest bounds manifests and indexes in bytes, as registries do.
const maxManifest = 4 << 20

// unpacked is an archive's content, by digests that were computed of it.
type unpacked struct {
	content.Store
	index ocispec.Descriptor
}

// unpack copies the archive at path into a directory of its own below dir. What the archive
// calls its files decides nothing about where they are written.
func unpack(ctx context.Context, path, dir string, bound limits) (unpacked, error) {
	// A store asks the file system for fs-verity when it is opened, and logs past any context that
	// there is none.
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
		return unpacked{}, invalid("it is neither a file nor a directory")
	}
	index, err := read(ctx, path, store, bound)
	if err != nil {
		return unpacked{}, err
	}
	return unpacked{store, index}, nil
}

// fromTar reads a tar file.
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

// load reads the tar file r. Layers of docker's format, which are not compressed, are.
func load(ctx context.Context, r io.Reader, store content.Store) (ocispec.Descriptor, error) {
	index, err := archive.ImportIndex(ctx, store, contextReader{ctx, r}, archive.WithImportCompression())
	switch {
	case err == nil:
		return index, nil
	case ctx.Err() != nil:
		return index, context.Cause(ctx)
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // of this host's disk
		return index, err
	}
	return index, invalid("%w", err)
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of the one call that reads
	r   io.Reader
}

// Read implements [io.Reader].
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// compressions are how compressed files begin.
var compressions = map[string]string{"gzip": "\x1f\x8b", "zstd": "\x28\xb5\x2f\xfd", "bzip2": "BZh", "xz": "\xfd7zXZ"}

// checkTar reads the headers of a tar file, all of them, before anything of it is stored:
// a file of a few bytes may announce others of any size.
func checkTar(f *os.File, bound limits) error {
	head := make([]byte, 8)
	n, _ := f.ReadAt(head, 0) // a short one is found below
	for name, magic := range compressions {
		if strings.HasPrefix(string(head[:n]), magic) {
			return invalid("it is compressed with %s: unpack it first, its layers are compressed already", name)
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	bound.bytes = min(bound.bytes, info.Size()) // what announces more has holes, or an end that is missing
	s := &sums{bound: bound}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && s.entries > 0:
			return nil
		case errors.Is(err, io.EOF):
			return invalid("it is empty")
		case err != nil:
			return invalid("it is no tar file: %w", err)
		}
		if err := s.add(h.Name, h.Size); err != nil {
			return err
		}
	}
}

// sums counts an archive's entries.
type sums struct {
	bound   limits
	entries int
	bytes   int64
}

// add counts an entry.
func (s *sums) add(name string, size int64) error {
	s.entries++
	s.bytes += size
	switch {
	case s.entries > s.bound.entries:
		return invalid("it has more than %d entries", s.bound.entries)
	case size < 0 || s.bytes < 0 || s.bytes > s.bound.bytes:
		return invalid("its files are said to have more than %d bytes, and it has no more", s.bound.bytes)
	case !filepath.IsLocal(name):
		return invalid("it has a file %s, which is outside of it", bourse.Quoted(name))
	}
	return nil
}

// fromLayout reads a directory with the files of an archive.
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
	_ = r.Close() // never fails; ends the writer
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
		return index, sendErr
	}
	return index, err
}

// checkLayout looks at a directory's files before any is read.
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
			return invalid("%s in it is not a plain file", bourse.Quoted(name))
		}
		return s.add(name, info.Size())
	})
	if err == nil && s.entries == 0 {
		return invalid("it is empty")
	}
	return err
}

// invalid is an error about the archive.
func invalid(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeInvalid, "no archive of an image: %w", fmt.Errorf(format, args...))
}
