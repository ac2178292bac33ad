package registrytest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// File is an entry of a layer: a regular file, link, directory or device.
type File struct {
	Data    []byte
	Mode    int64  // default 0644, or 0755 for directories
	Symlink string // target of a symbolic link, written unchanged
	Link    string // target of a hard link, written unchanged
	Dir     bool
	UID     int
	GID     int

	Device       byte // 'c', 'b' or 'p' (a FIFO)
	Major, Minor int64
}

// Layer contains a layer's entries by path. Paths are written unchanged, even paths like
// "../../etc/passwd". Entries are written in lexical order, except that hard links are last. Parent
// directories are optional.
type Layer map[string]File

// Busybox returns a layer with a small working system; see [containerdtest.Busybox].
func Busybox(tb testing.TB) Layer {
	tb.Helper()
	out := Layer{}
	for name, f := range containerdtest.Busybox(tb) {
		out[name] = File{Data: f.Data, Mode: f.Mode, Symlink: f.Symlink, Link: f.Link, Dir: f.Dir, UID: f.UID, GID: f.GID}
	}
	return out
}

// Random returns a layer with one incompressible file of size bytes. Its content depends
// only on the seed.
func Random(seed uint64, size int) Layer {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(data) // never fails
	return Layer{fmt.Sprintf("random-%d", seed): {Data: data}}
}

// ManyFiles returns a layer with n empty files, 1000 in each directory.
func ManyFiles(n int) Layer {
	out := Layer{}
	for i := range n {
		out[fmt.Sprintf("many/%03d/%06d", i/1000, i)] = File{}
	}
	return out
}

// write writes the layer as a tar file.
func (l Layer) write(to io.Writer) error {
	w := tar.NewWriter(to)
	names := slices.Sorted(maps.Keys(l))
	isLink := func(name string) bool { return l[name].Link != "" }
	for _, links := range []bool{false, true} {
		for _, name := range names {
			if isLink(name) != links {
				continue
			}
			if err := w.WriteHeader(l[name].header(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, err := w.Write(l[name].Data); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return w.Close()
}

func (f File) header(name string) *tar.Header {
	h := &tar.Header{Name: name, Mode: f.Mode, Typeflag: tar.TypeReg, Size: int64(len(f.Data)), Uid: f.UID, Gid: f.GID}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	switch {
	case f.Symlink != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Symlink, 0o777
	case f.Link != "":
		h.Typeflag, h.Linkname = tar.TypeLink, f.Link
	case f.Dir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if f.Mode == 0 {
			h.Mode = 0o755
		}
	case f.Device == 'c':
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, f.Major, f.Minor
	case f.Device == 'b':
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeBlock, f.Major, f.Minor
	case f.Device == 'p':
		h.Typeflag = tar.TypeFifo
	}
	return h
}

// tar returns the layer as a tar file in memory.
func (l Layer) tar() ([]byte, error) {
	var buf bytes.Buffer
	err := l.write(&buf)
	return buf.Bytes(), err
}
