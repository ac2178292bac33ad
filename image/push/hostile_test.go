package push

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
)

// tight contains bounds that a small archive exceeds.
var tight = limits{bytes: 1 << 20, entries: 20}

// TestHostileArchives checks that a hostile archive is refused: nothing is sent, nothing is
// written outside of the temporary directory, and no file remains in it.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	image := small(t, 1)
	honest := layout(t, image)
	changed := func(name string, change func([]byte) []byte) []entry {
		out := append([]entry(nil), honest...)
		for i, e := range out {
			if strings.Contains(e.name, name) {
				out[i].data = change(e.data)
			}
		}
		return out
	}
	others := func(d ocispec.Descriptor, more ...entry) []entry {
		index := asJSON(t, ocispec.Index{Manifests: []ocispec.Descriptor{d}})
		return append(changed("index.json", func([]byte) []byte { return index }), more...)
	}
	wide, wideBlobs := nested(t)
	for name, tc := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":            {nil, "empty"},
		"text":               {bytes.Repeat([]byte("no archive "), 200), "not a tar file"},
		"no layout":          {tarOf(t, entry{name: "a", data: []byte("a")}), "unrecognized image format"},
		"no index":           {tarOf(t, honest[0]), "missing index.json"},
		"no image":           {tarOf(t, honest[0], entry{name: "index.json", data: []byte("{}")}), "contains no image"},
		"no JSON":            {tarOf(t, changed("index.json", func([]byte) []byte { return []byte("{") })...), "index: "},
		"compressed":         {zipped(t, tarOf(t, honest...)), "compressed with gzip"},
		"outside":            {tarOf(t, append(honest, entry{name: "../../escaped", data: []byte("x")})...), "outside of the archive"},
		"absolute":           {tarOf(t, append(honest, entry{name: "/tmp/escaped", data: []byte("x")})...), "outside of the archive"},
		"cut":                {cut(tarOf(t, honest...)), ""},
		"announced as large": {announced(1 << 50), "declared sizes"},
		"many entries":       {tarOf(t, append(honest, many(30)...)...), "more than 20 entries"},
		"too many bytes":     {tarOf(t, append(honest, entry{name: "x", data: make([]byte, 2<<20)})...), "exceed 1048576 bytes"},
		"another blob": {tarOf(t, changed(image.Layers[0].Digest.Encoded(), func(b []byte) []byte {
			return append([]byte{^b[0]}, b[1:]...)
		})...), "part " + image.Layers[0].Digest.String()},
		"another size":    {tarOf(t, others(with(image.Manifest, func(d *ocispec.Descriptor) { d.Size++ }))...), "but its descriptor states"},
		"no image's type": {tarOf(t, others(with(image.Manifest, func(d *ocispec.Descriptor) { d.MediaType = "text/plain" }))...), "media type"},
		"a layer's type": {tarOf(t, others(with(image.Manifest, func(d *ocispec.Descriptor) {
			d.MediaType = ocispec.MediaTypeImageIndex
		}))...), "expected index"},
		"no digest":        {tarOf(t, others(with(image.Manifest, func(d *ocispec.Descriptor) { d.Digest = "../../../etc/passwd" }))...), "digest"},
		"manifests nested": {tarOf(t, others(wide, wideBlobs...)...), "more than 20 parts"},
	} {
		temp := t.TempDir()
		_, err := Request{Archive: write(t, tc.archive), Name: r.Name("web:v1"), Temp: temp}.push(t.Context(), tight)
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it invalid: %s", name, err, tc.want)
		}
		if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
			t.Errorf("%s: left behind: %v %v", name, left, err)
		}
	}
	if got := r.Stats().Requests; got != 0 {
		t.Errorf("the registry received %d requests", got)
	}
}

// TestHostileDirectories checks that a directory that contains links or special files is refused.
func TestHostileDirectories(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"link out":  func(path string) error { return os.Symlink("/etc/passwd", path) },
		"link in":   func(path string) error { return os.Symlink("oci-layout", path) },
		"too large": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
		"nothing":   func(string) error { return nil },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "index.json")); err != nil {
			t.Fatal(err)
		}
		_, err := Request{Archive: dir, Name: "127.0.0.1:1/web", Temp: t.TempDir()}.push(t.Context(), tight)
		if bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want it invalid", name, err)
		}
	}
	for path, want := range map[string]bourse.Code{"/dev/zero": bourse.CodeInvalid, "/none": bourse.CodeNotFound} {
		if _, err := Push(t.Context(), Request{Archive: path, Name: "127.0.0.1:1/web", Temp: t.TempDir()}); bourse.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"web": true, "registry.test/team/web:v1": true, "127.0.0.1:5000/web": true,
		"": false, "host": false, "Web": false, "registry.test/web@sha256:" + strings.Repeat("0", 64): false, "registry.test/a b": false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("%q: %v, want it to be valid: %t", name, err, want)
		}
	}
}

func with(d ocispec.Descriptor, edit func(*ocispec.Descriptor)) ocispec.Descriptor {
	edit(&d)
	return d
}

func zipped(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// cut removes the end of a tar file and a part of its last file.
func cut(data []byte) []byte { return data[:len(data)-2048] }

// announced returns a tar file that contains only the header of a file of this size.
func announced(size int64) []byte {
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: "blobs/sha256/a", Size: size, Typeflag: tar.TypeReg, Format: tar.FormatGNU}); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func many(n int) []entry {
	out := make([]entry, n)
	for i := range out {
		out[i].name = fmt.Sprintf("f%d", i)
	}
	return out
}

// nested returns an index that lists another index ten times, which lists yet another one ten times, and so on. With a
// few more levels, visiting all of them would never end.
func nested(tb testing.TB) (ocispec.Descriptor, []entry) {
	tb.Helper()
	var blobs []entry
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("leaf"), Size: 4}
	blobs = append(blobs, entry{name: "blobs/sha256/" + d.Digest.Encoded(), data: []byte("leaf")})
	for range 3 {
		raw := asJSON(tb, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d, d, d, d, d, d, d, d, d, d}})
		d = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
		blobs = append(blobs, entry{name: "blobs/sha256/" + d.Digest.Encoded(), data: raw})
	}
	return d, blobs
}

// FuzzArchive reads arbitrary bytes as an archive. Reading must end and respect the bounds, and
// every part of an accepted image must have the digest in its descriptor.
func FuzzArchive(f *testing.F) {
	image := registrytest.Build(f, registrytest.Image{Layers: []registrytest.Layer{{"a": {Data: []byte("a")}}}})
	f.Add(tarOf(f, layout(f, image)...))
	f.Add(tarOf(f, layout(f, image, image)...))
	f.Add(tarOf(f, entry{name: "manifest.json", data: []byte(`[{"Config":"c","RepoTags":["a:b"],"Layers":["l","m"]}]`)},
		entry{name: "c", data: []byte(`{"os":"linux","architecture":"amd64"}`)}, entry{name: "l", data: []byte("x")}, entry{name: "m", link: "l"}))
	f.Add(announced(1 << 40))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := unpack(quiet(t.Context()), path, t.TempDir(), tight)
		if err != nil {
			return
		}
		root, err := got.choose(t.Context(), "")
		if err != nil {
			return
		}
		sizes, err := got.verify(t.Context(), root, tight)
		if err != nil {
			return
		}
		for d, size := range sizes {
			r, err := got.ReaderAt(t.Context(), ocispec.Descriptor{Digest: d})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
			if err != nil || digest.FromBytes(raw) != d || int64(len(raw)) != size {
				t.Errorf("%s has %d bytes of %s, want %d: %v", d, len(raw), digest.FromBytes(raw), size, err)
			}
			_ = r.Close()
		}
	})
}
