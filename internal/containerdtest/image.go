package containerdtest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is a file in an image: a regular file, symbolic link, hard link to another file, or
// directory.
type File struct {
	Data    []byte
	Mode    int64  // default: 0644, or 0755 for directories
	Symlink string // target of a symbolic link
	Link    string // for a hard link: the path of the file to link to
	Dir     bool
	UID     int
	GID     int
}

// Image is an OCI image with one layer.
type Image struct {
	Manifest ocispec.Descriptor
	Blobs    map[digest.Digest][]byte // manifest, configuration and layer, for a store or a registry
	Config   ocispec.Descriptor
	Layer    ocispec.Descriptor
}

// build builds an image for this platform. The files are keyed by path. Equal files and
// configurations have equal digests. Parent directories are optional.
func build(files map[string]File, config ocispec.ImageConfig) (Image, error) {
	data, err := layer(files)
	if err != nil {
		return Image{}, err
	}
	out := Image{Blobs: map[digest.Digest][]byte{}}
	out.Layer = out.add(ocispec.MediaTypeImageLayer, data)
	out.Config, err = out.addJSON(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config:   config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{out.Layer.Digest}},
	})
	if err != nil {
		return Image{}, err
	}
	out.Manifest, err = out.addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    out.Config,
		Layers:    []ocispec.Descriptor{out.Layer},
	})
	return out, err
}

// MustBuild is like [build], but fails the test on an error.
func MustBuild(tb testing.TB, files map[string]File, config ocispec.ImageConfig) Image {
	tb.Helper()
	image, err := build(files, config)
	if err != nil {
		tb.Fatal(err)
	}
	return image
}

func (i *Image) add(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	i.Blobs[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (i *Image) addJSON(mediaType string, value any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(value)
	return i.add(mediaType, data), err
}

// layer returns the tar file of a layer, with its entries sorted by path.
func layer(files map[string]File) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{".": true}
	for _, name := range order(files) {
		name, file := strings.Trim(name, "/"), files[name]
		for dir := range parents(name) {
			if !made[dir] {
				made[dir] = true
				if err := write(w, dir, File{Dir: true}); err != nil {
					return nil, err
				}
			}
		}
		if made[name] && file.Dir {
			continue
		}
		made[name] = file.Dir
		if file.Link != "" { // in an archive, a hard link sets the mode of its target
			file.Mode = files[file.Link].Mode
		}
		if err := write(w, name, file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// order returns the files' paths, sorted, but with hard links last, so that each follows its
// target.
func order(files map[string]File) []string {
	names := slices.Sorted(maps.Keys(files))
	slices.SortStableFunc(names, func(a, b string) int {
		return boolToInt(files[a].Link != "") - boolToInt(files[b].Link != "")
	})
	return names
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// parents yields the directories above a path, outermost first.
func parents(name string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i, r := range name {
			if r == '/' && !yield(path.Clean(name[:i])) {
				return
			}
		}
	}
}

func write(w *tar.Writer, name string, f File) error {
	h := &tar.Header{Name: name, Mode: f.Mode, Typeflag: tar.TypeReg, Size: int64(len(f.Data)), Uid: f.UID, Gid: f.GID}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	switch {
	case f.Symlink != "":
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, f.Symlink, 0, 0o777
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, strings.Trim(f.Link, "/"), 0
	case f.Dir:
		h.Typeflag, h.Size, h.Name = tar.TypeDir, 0, name+"/"
		if f.Mode == 0 {
			h.Mode = 0o755
		}
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(f.Data[:h.Size])
	return err
}

// Busybox returns the files of a small system: a static busybox under the names of its commands,
// /tmp, and an /etc/passwd with the users root, nobody and app (UID 1000). It skips the test if the
// host has no busybox.
func Busybox(tb testing.TB) map[string]File {
	tb.Helper()
	const binary = "/bin/busybox"
	data, err := os.ReadFile(binary)
	if err != nil {
		tb.Skipf("no static busybox for an image (Debian's package is busybox-static): %v", err)
	}
	files := map[string]File{
		binary:        {Data: data, Mode: 0o755},
		"/etc/passwd": {Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n")},
		"/etc/group":  {Data: []byte("root:x:0:\nnogroup:x:65534:\napp:x:1000:\n")},
		"/tmp":        {Dir: true, Mode: 0o1777},
		"/root":       {Dir: true, Mode: 0o700},
		"/home/app":   {Dir: true, UID: 1000, GID: 1000},
	}
	for name := range strings.FieldsSeq(applets) { // run other commands as /bin/busybox NAME
		files["/bin/"+name] = File{Link: binary, Mode: 0o755} // in an archive, a hard link sets the mode of its target
	}
	return files
}

// applets lists the busybox commands that images contain.
const applets = `sh ash cat chmod chown cp date dd df echo env false find grep head hostname httpd id ip kill ln ls
	mkdir mkfifo mknod mount mv nc nslookup pidof ping printf ps pwd readlink rm sed seq setsid sleep sort stat stty sync tail
	test touch tr true tty ulimit umount uname vi wc wget yes`
