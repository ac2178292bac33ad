package push

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/credentials"
	"github.com/bourse-dev/bourse/image/registrytest"
)

// entry is a file or link in an archive.
type entry struct {
	name string
	data []byte
	link string
}

// tarOf returns a tar file with entries.
func tarOf(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func asJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// layout returns the entries of an OCI image layout with these images.
func layout(tb testing.TB, images ...registrytest.Built) []entry {
	tb.Helper()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}}
	blobs := map[digest.Digest][]byte{}
	for i, image := range images {
		d := image.Manifest
		d.Annotations = map[string]string{ocispec.AnnotationRefName: fmt.Sprintf("v%d", i+1)}
		index.Manifests = append(index.Manifests, d)
		maps.Copy(blobs, image.Blobs)
	}
	out := []entry{{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {name: "index.json", data: asJSON(tb, index)}}
	for _, d := range slices.Sorted(maps.Keys(blobs)) {
		out = append(out, entry{name: "blobs/sha256/" + d.Encoded(), data: blobs[d]})
	}
	return out
}

// write writes a file and returns its path.
func write(tb testing.TB, data []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "image.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// small returns an image with two layers.
func small(tb testing.TB, seed uint64) registrytest.Built {
	tb.Helper()
	return registrytest.Build(tb, registrytest.Image{Layers: []registrytest.Layer{
		registrytest.Random(seed, 5000), {"etc/seed": {Data: fmt.Append(nil, seed)}},
	}})
}

// get requests a URL of a registry and returns the body and the digest.
func get(tb testing.TB, url string) (body []byte, dig string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Accept", strings.Join([]string{
		ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.v2+json",
	}, ", "))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatalf("%s: %s %s %v", url, resp.Status, body, err)
	}
	return body, resp.Header.Get("Docker-Content-Digest")
}

// TestPushLayout pushes an OCI layout as a tar file and as a directory, and checks that the
// registry has each part. A second push must not send any part again.
func TestPushLayout(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	image := small(t, 1)
	entries := layout(t, image)
	dir := t.TempDir()
	for _, e := range entries {
		path := filepath.Join(dir, e.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, e.data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for tag, archive := range map[string]string{"file": write(t, tarOf(t, entries...)), "directory": dir} {
		var last Progress
		temp := t.TempDir()
		got, err := Push(t.Context(), Request{
			Archive: archive, Name: r.Name("team/web:" + tag), Temp: temp, Progress: func(p Progress) { last = p },
		})
		if want := r.Name("team/web:" + tag + "@" + image.Manifest.Digest.String()); got != want || err != nil {
			t.Fatalf("%s: %q, %v, want %q", tag, got, err, want)
		}
		if last.Sent != last.Total || last.Total != image.Bytes()+image.Manifest.Size {
			t.Errorf("%s: %d of %d bytes at the end, want %d", tag, last.Sent, last.Total, image.Bytes()+image.Manifest.Size)
		}
		if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
			t.Errorf("%s: left behind: %v %v", tag, left, err)
		}
		raw, _ := get(t, "http://"+r.Host+"/v2/team/web/manifests/"+tag)
		if digest.FromBytes(raw) != image.Manifest.Digest {
			t.Errorf("%s: the registry has manifest %s", tag, raw)
		}
	}
	for _, l := range append(image.Layers, image.Config) {
		raw, _ := get(t, "http://"+r.Host+"/v2/team/web/blobs/"+l.Digest.String())
		if !bytes.Equal(raw, image.Blobs[l.Digest]) {
			t.Errorf("the registry has different bytes for %s", l.Digest)
		}
	}
}

// TestPushIndex pushes an image for two platforms.
func TestPushIndex(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	amd, arm := small(t, 1), small(t, 2)
	index := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{amd.Manifest, arm.Manifest},
	}
	raw := asJSON(t, index)
	d := ocispec.Descriptor{MediaType: index.MediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	both := registrytest.Built{Manifest: d, Blobs: map[digest.Digest][]byte{d.Digest: raw}}
	maps.Copy(both.Blobs, amd.Blobs)
	maps.Copy(both.Blobs, arm.Blobs)
	if _, err := Push(t.Context(), Request{Archive: write(t, tarOf(t, layout(t, both)...)), Name: r.Name("web")}); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]digest.Digest{"latest": d.Digest, arm.Manifest.Digest.String(): arm.Manifest.Digest} {
		if _, got := get(t, "http://"+r.Host+"/v2/web/manifests/"+ref); got != want.String() {
			t.Errorf("%s is %s, want %s", ref, got, want)
		}
	}
}

// TestPushDockerSave pushes the output of an old "docker save": the layers are not compressed,
// and one of them is a link to another.
func TestPushDockerSave(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	layer := tarOf(t, entry{name: "hello", data: bytes.Repeat([]byte("hello "), 1000)})
	config := asJSON(t, ocispec.Image{
		Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer), digest.FromBytes(layer)}},
	})
	manifest := asJSON(t, []map[string]any{{"Config": "c.json", "RepoTags": []string{"web:v1"}, "Layers": []string{"a/layer.tar", "b/layer.tar"}}})
	archive := write(t, tarOf(t, entry{name: "c.json", data: config}, entry{name: "a/layer.tar", data: layer},
		entry{name: "b/layer.tar", link: "../a/layer.tar"}, entry{name: "manifest.json", data: manifest}))
	if _, err := Push(t.Context(), Request{Archive: archive, Image: "docker.io/library/web:v1", Name: r.Name("web:v1")}); err != nil {
		t.Fatal(err)
	}
	raw, _ := get(t, "http://"+r.Host+"/v2/web/manifests/v1")
	var got ocispec.Manifest
	if err := json.Unmarshal(raw, &got); err != nil || len(got.Layers) != 2 {
		t.Fatalf("%s %v", raw, err)
	}
	if l := got.Layers[0]; !strings.HasSuffix(l.MediaType, "gzip") || l.Size >= int64(len(layer)) {
		t.Errorf("layer of %d bytes is pushed as %+v, want it compressed", len(layer), l)
	}
}

// TestPushOneOfSeveral checks that the caller must specify an image if the archive contains several.
func TestPushOneOfSeveral(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	one, two := small(t, 1), small(t, 2)
	archive := write(t, tarOf(t, layout(t, one, two)...))
	for image, want := range map[string]string{
		"": "", "v3": "", "v2": two.Manifest.Digest.String(), one.Manifest.Digest.String(): one.Manifest.Digest.String(),
	} {
		got, err := Push(t.Context(), Request{Archive: archive, Image: image, Name: r.Name("web:v1")})
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), `"v2"`)):
			t.Errorf("%q: %v, want an error that mentions v2", image, err)
		case want != "" && !strings.HasSuffix(got, want):
			t.Errorf("%q: %s, %v, want %s", image, got, err, want)
		}
	}
}

// TestPushAsWhom checks that a push uses the given credentials, or else those in docker's file,
// if the registry requires any.
func TestPushAsWhom(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{TLS: true, Username: "ann", Password: "secret"})
	dir := t.TempDir()
	config := func(name, login string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte(login)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	archive := write(t, tarOf(t, layout(t, small(t, 1))...))
	for name, tc := range map[string]struct {
		Login  credentials.Login
		Config string
		want   bourse.Code
	}{
		"given":    {Login: credentials.Login{Name: "ann", Secret: "secret"}, want: ""},
		"in file":  {Config: config("right", "ann:secret"), want: ""},
		"wrong":    {Config: config("wrong", "ann:other"), want: bourse.CodeUnauthorized},
		"none":     {want: bourse.CodeUnauthorized},
		"no file":  {Config: filepath.Join(dir, "none"), want: bourse.CodeUnauthorized},
		"bad file": {Config: archive, want: bourse.CodeInvalid},
	} {
		_, err := Push(t.Context(), Request{Archive: archive, Name: r.Name("web:v1"), CA: r.CA, Login: tc.Login, Config: tc.Config})
		if got := codeOf(err); got != tc.want {
			t.Errorf("%s: code %q (%v), want %q", name, got, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}

func codeOf(err error) bourse.Code {
	if err == nil {
		return ""
	}
	return bourse.CodeOf(err)
}

// TestPushPlainly checks that Push uses plain HTTP for registries on loopback, and for other registries only
// if requested.
func TestPushPlainly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		r    Request
		want string
	}{
		"registry.test/web":                      {Request{}, "https"},
		"registry.test/web:insecure":             {Request{Insecure: true}, "http"},
		"127.0.0.1:1/web":                        {Request{}, "http"},
		"localhost/web":                          {Request{}, "http"},
		"localhost.registry.test/web":            {Request{}, "https"},
		"registry.test/web:insecure-but-with-ca": {Request{Insecure: true, CA: registrytest.Start(t, registrytest.Options{TLS: true}).CA}, "https"},
	} {
		ref, err := parse(name)
		if err != nil {
			t.Fatal(err)
		}
		h, done, err := tc.r.host(ref.Registry)
		if err != nil || h.Scheme != tc.want {
			t.Errorf("%s is reached by %s, %v, want %s", name, h.Scheme, err, tc.want)
		}
		done()
	}
}

// TestPushFaults pushes to registries that refuse requests, break connections or are stopped. The
// tag must not move, and the error's code must show whether a retry can help.
func TestPushFaults(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	before := r.Push(t, "web:v1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Random(9, 100)}})
	archive := write(t, tarOf(t, layout(t, small(t, 1))...))
	put := func(f registrytest.Fault) func(*http.Request) registrytest.Fault {
		return func(req *http.Request) registrytest.Fault {
			if req.Method == http.MethodPut && registrytest.IsManifest(req) {
				return f
			}
			return registrytest.Fault{}
		}
	}
	for name, tc := range map[string]struct {
		fault func(*http.Request) registrytest.Fault
		want  bourse.Code
	}{
		"refuses": {put(registrytest.Fault{Status: http.StatusForbidden}), bourse.CodeForbidden},
		"breaks":  {put(registrytest.Fault{Cut: true}), bourse.CodeUnavailable},
		"fails":   {put(registrytest.Fault{Status: http.StatusServiceUnavailable}), bourse.CodeUnavailable},
		"says no": {put(registrytest.Fault{Status: http.StatusBadRequest}), bourse.CodeInvalid},
	} {
		r.Fault(tc.fault)
		_, err := Push(t.Context(), Request{Archive: archive, Name: before.Name})
		if got := codeOf(err); got != tc.want {
			t.Errorf("%s: code %q (%v), want %q", name, got, err, tc.want)
		}
		r.Fault(nil)
		if _, got := get(t, "http://"+r.Host+"/v2/web/manifests/v1"); got != before.Digest {
			t.Errorf("%s: the tag is at %s, want %s", name, got, before.Digest)
		}
	}
	r.Stop()
	if _, err := Push(t.Context(), Request{Archive: archive, Name: before.Name}); codeOf(err) != bourse.CodeUnavailable {
		t.Errorf("an unreachable registry: %v", err)
	}
}

// TestPushStopped cancels a push while the registry delays a request.
func TestPushStopped(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{})
	ctx, stop := context.WithCancel(t.Context())
	r.Fault(func(req *http.Request) registrytest.Fault {
		if req.Method == http.MethodPut {
			stop()
			return registrytest.Fault{Hang: true}
		}
		return registrytest.Fault{}
	})
	temp := t.TempDir()
	_, err := Push(ctx, Request{Archive: write(t, tarOf(t, layout(t, small(t, 1))...)), Name: r.Name("web"), Temp: temp})
	if codeOf(err) != bourse.CodeCanceled {
		t.Errorf("%v, want it canceled", err)
	}
	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}
