package registrytest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Pushed is an image in a registry.
type Pushed struct {
	Name   string // name with registry and tag: "127.0.0.1:41234/web:v1"
	Digest string // digest of its manifest or index
	Bytes  int64  // size of its configuration and layers; 0 for an index
	Built
}

// Ref returns the image's name with its digest instead of its tag.
func (p Pushed) Ref() string { return p.Name + "@" + p.Digest }

// Push builds an image and stores it as "repository:tag". The requests are not counted, and faults
// do not apply to them.
func (r *Registry) Push(tb testing.TB, name string, image Image) Pushed {
	tb.Helper()
	return r.PushBuilt(tb, name, Build(tb, image))
}

// PushBuilt stores a built image.
func (r *Registry) PushBuilt(tb testing.TB, name string, built Built) Pushed {
	tb.Helper()
	r.PushBlobs(tb, name, built.Manifest, built.Blobs)
	return Pushed{Name: r.Name(name), Digest: built.Manifest.Digest.String(), Bytes: built.Bytes(), Built: built}
}

// PushIndex stores images for several platforms, and an index that lists them, under one name.
func (r *Registry) PushIndex(tb testing.TB, name string, images ...Image) Pushed {
	tb.Helper()
	repository, _, _ := strings.Cut(name, ":")
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, image := range images {
		built := Build(tb, image)
		// Store the image by digest instead of a tag, because only the index gets the tag.
		r.PushBlobs(tb, repository+":"+built.Manifest.Digest.String(), built.Manifest, built.Blobs)
		desc := built.Manifest
		desc.Platform = image.platform()
		index.Manifests = append(index.Manifests, desc)
	}
	data, err := json.Marshal(index)
	if err != nil {
		tb.Fatal(err)
	}
	desc := ocispec.Descriptor{MediaType: index.MediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	r.PushBlobs(tb, name, desc, map[digest.Digest][]byte{desc.Digest: data})
	return Pushed{Name: r.Name(name), Digest: desc.Digest.String()}
}

// PushBlobs stores blobs and then a manifest, which it names "repository:tag".
func (r *Registry) PushBlobs(tb testing.TB, name string, manifest ocispec.Descriptor, blobs map[digest.Digest][]byte) {
	tb.Helper()
	repository, tag, _ := strings.Cut(name, ":")
	for d, data := range blobs {
		if d != manifest.Digest {
			r.pushBlob(tb, repository, d, data)
		}
	}
	r.request(tb, http.MethodPut, "/v2/"+repository+"/manifests/"+tag, manifest.MediaType, blobs[manifest.Digest], http.StatusCreated)
}

func (r *Registry) pushBlob(tb testing.TB, repository string, d digest.Digest, data []byte) {
	tb.Helper()
	started := r.request(tb, http.MethodPost, "/v2/"+repository+"/blobs/uploads/", "", nil, http.StatusAccepted)
	to, err := url.Parse(started.Get("Location"))
	if err != nil {
		tb.Fatal(err)
	}
	query := to.Query()
	query.Set("digest", d.String())
	r.request(tb, http.MethodPut, to.Path+"?"+query.Encode(), "application/octet-stream", data, http.StatusCreated)
}

// request sends a request directly to the registry's handler.
func (r *Registry) request(tb testing.TB, method, path, contentType string, data []byte, want int) http.Header {
	tb.Helper()
	req := httptest.NewRequestWithContext(tb.Context(), method, "http://"+r.Host+path, bytes.NewReader(data))
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.options.Username != "" {
		req.SetBasicAuth(r.options.Username, r.options.Password)
	}
	w := httptest.NewRecorder()
	r.app.ServeHTTP(w, req)
	if w.Code != want {
		tb.Fatalf("%s %s: the registry answered %d %s, want %d", method, path, w.Code, w.Body, want)
	}
	return w.Header()
}
