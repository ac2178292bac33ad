package deploy

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/image/push"
	"github.com/bourse-dev/bourse/image/registrytest"
)

// TestImagePush pushes an archive to a registry twice. The second push sends nothing.
func TestImagePush(t *testing.T) {
	r := registrytest.Start(t, registrytest.Options{})
	image := registrytest.Build(t, registrytest.Image{Layers: []registrytest.Layer{registrytest.Random(1, 3<<20)}})
	archive := filepath.Join(t.TempDir(), "web.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	add := func(name string, data []byte) {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o600})
		if _, wrote := w.Write(data); errors.Join(err, wrote) != nil {
			t.Fatal(err, wrote)
		}
	}
	index, err := json.Marshal(ocispec.Index{Manifests: []ocispec.Descriptor{image.Manifest}})
	if err != nil {
		t.Fatal(err)
	}
	add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	add("index.json", index)
	for d, data := range image.Blobs {
		add("blobs/sha256/"+d.Encoded(), data)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	name, config := r.Name("team/web:v1"), filepath.Join(t.TempDir(), "none")
	want := name + "@" + image.Manifest.Digest.String() + "\n"
	for range 2 {
		got := line.Run(t, "image", "push", archive, name, "--docker-config", config)
		if got.Code != 0 || got.Out != want || got.Err != name+"  pushed, 3.0 MiB\n" {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	if got := line.Run(t, "image", "push", "--json", archive, name); got.Code != 0 || !strings.Contains(got.Out, `"image": "`+strings.TrimSpace(want)) {
		t.Errorf("%+v", got)
	}
	if got := line.Run(t, "image", "push", f.Name()+"x", name); got.Code != 3 || !strings.Contains(got.Err, "no such file") {
		t.Errorf("missing archive: %+v", got)
	}
	if got := line.Run(t, "image", "push", archive, name, "--registry-user", "ann"); got.Code != 2 || !strings.Contains(got.Err, "BOURSE_REGISTRY_PASSWORD") {
		t.Errorf("a name without a password: %+v", got)
	}
}

// TestPushToARegistryWithoutTLS checks that the error for a registry without TLS suggests --insecure and not another
// --api.
func TestPushToARegistryWithoutTLS(t *testing.T) {
	for _, cause := range []error{http.ErrSchemeMismatch, tls.RecordHeaderError{}} {
		_, err := showPush(t.Context(), &cli.Shell{}, "registry.test/web:1", func(context.Context, func(push.Progress)) (string, error) {
			return "", bourse.Errorf(bourse.CodeUnavailable, "push: %w", cause)
		})
		if hints := cli.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "--insecure") || !errors.Is(err, cause) {
			t.Errorf("after %v: %v, hints %q", cause, err, hints)
		}
	}
}
