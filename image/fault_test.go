package image_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// of returns a function that applies a fault to replies with the blob or manifest d.
func of(d digest.Digest, f registrytest.Fault) func(*http.Request) registrytest.Fault {
	return func(req *http.Request) registrytest.Fault {
		if strings.HasSuffix(req.URL.Path, d.String()) {
			return f
		}
		return registrytest.Fault{}
	}
}

// TestPermanentPullErrors pulls images that can never be pulled successfully. The pulls must leave nothing
// behind.
func TestPermanentPullErrors(t *testing.T) {
	big := int64(500_000)
	for name, tc := range map[string]struct {
		image registrytest.Image
		fault func(registrytest.Pushed) func(*http.Request) registrytest.Fault
		want  bourse.Code
	}{
		"layer with other bytes": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return of(p.Layers[1].Digest, registrytest.Fault{Corrupt: true})
			},
			want: bourse.CodeInvalid,
		},
		"manifest with other bytes": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return of(p.Manifest.Digest, registrytest.Fault{Corrupt: true})
			},
			want: bourse.CodeInvalid,
		},
		"configuration with other bytes": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return of(p.Config.Digest, registrytest.Fault{Corrupt: true})
			},
			want: bourse.CodeInvalid,
		},
		"manifest without end": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				// Its Content-Length exceeds the maximum size of a manifest.
				return of(p.Manifest.Digest, registrytest.Fault{Body: make([]byte, 5<<20)})
			},
			want: bourse.CodeNotFound,
		},
		"manifest larger than declared": {
			fault: func(registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return func(req *http.Request) registrytest.Fault {
					if registrytest.IsManifest(req) && req.Method == http.MethodGet {
						return registrytest.Fault{Body: make([]byte, 5<<20)}
					}
					return registrytest.Fault{}
				}
			},
			want: bourse.CodeInvalid,
		},
		"layer is gone": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return of(p.Layers[1].Digest, registrytest.Fault{Status: http.StatusNotFound})
			},
			want: bourse.CodeNotFound,
		},
		"denied": {
			fault: func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
				return of(p.Manifest.Digest, registrytest.Fault{Status: http.StatusForbidden})
			},
			want: bourse.CodeNotFound,
		},
		"size too small": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Layers[0].Size-- }},
			want:  bourse.CodeInvalid,
		},
		"size too large": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Layers[0].Size = big }},
			want:  bourse.CodeInvalid,
		},
		"size of nothing": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Layers[0].Size = 0 }},
			want:  bourse.CodeInvalid,
		},
		"configuration's size": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Config.Size++ }},
			want:  bourse.CodeInvalid,
		},
		"layers that are missing from the configuration": {
			image: registrytest.Image{EditConfig: func(c *ocispec.Image) { c.RootFS.DiffIDs = c.RootFS.DiffIDs[:1] }},
			want:  bourse.CodeInvalid,
		},
		"layer that unpacks to something else": {
			image: registrytest.Image{EditConfig: func(c *ocispec.Image) { c.RootFS.DiffIDs[1] = digest.FromString("else") }},
			want:  bourse.CodeInvalid,
		},
		"layer that is not an archive": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Layers[1] = m.Config; m.Layers[1].MediaType = ocispec.MediaTypeImageLayer }},
			want:  bourse.CodeInvalid,
		},
		"layer of an unknown type": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Layers[0].MediaType = "application/wasm" }},
			want:  bourse.CodeInvalid,
		},
		"no container's image": {
			image: registrytest.Image{Edit: func(m *ocispec.Manifest) { m.Config.MediaType = "application/vnd.cncf.helm.config.v1+json" }},
			want:  bourse.CodeInvalid,
		},
		"other platform": {image: registrytest.Image{Arch: "s390x"}, want: bourse.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, containerdtest.Start(t))
			r := registrytest.Start(t, registrytest.Options{})
			tc.image.Layers = random(20_000, 20_000)
			p := r.Push(t, "web:v1", tc.image)
			if tc.fault != nil {
				r.Fault(tc.fault(p))
			}
			s := h.open(t, nil)
			before := h.contents(t)
			_, err := s.Pull(t.Context(), "", refOf(p), nil)
			wantCode(t, err, tc.want)
			h.unchanged(t, before)
			if list, _ := s.List(t.Context()); len(list) != 0 || s.Has(refOf(p)) {
				t.Errorf("it is listed: %v", list)
			}
		})
	}
}

// TestNotFound requests images that a registry does not have.
func TestNotFound(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	s := h.open(t, nil)
	_, err := s.Resolve(t.Context(), "", r.Name("nobody:v1"))
	wantCode(t, err, bourse.CodeNotFound)
	before := h.contents(t)
	_, err = s.Pull(t.Context(), "", bourse.ParseImageRef(r.Name("nobody@"+digest.FromString("x").String())), nil)
	wantCode(t, err, bourse.CodeNotFound)
	h.unchanged(t, before)
	for _, name := range []string{"host", "", "UPPER/case", r.Name("web@sha256:12"), r.Name("../../etc:v1"), "a b"} {
		_, err = s.Resolve(t.Context(), "", name)
		wantCode(t, err, bourse.CodeInvalid)
	}
	r.Stop()
	_, err = s.Resolve(t.Context(), "", r.Name("nobody:v2"))
	wantCode(t, err, bourse.CodeUnavailable)
}

// TestPlatforms checks that a pull of an index fetches only the image for this host's platform.
func TestPlatforms(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	ours := registrytest.Image{Layers: random(20_000)}
	p := r.PushIndex(t, "web:v1",
		registrytest.Image{Arch: "s390x", Layers: random(20_000)}, ours,
		registrytest.Image{OS: "windows", Layers: random(20_000)})
	s := h.open(t, nil)
	got := pull(t, s, p.Name)
	built := registrytest.Build(t, ours)
	if got.Ref.Digest != p.Digest || got.Bytes != built.Bytes() {
		t.Errorf("pulled %s of %d bytes, want the index %s and %d bytes", got.Ref.Digest, got.Bytes, p.Digest, built.Bytes())
	}
	if fetched := r.Stats().BlobBytes; fetched != built.Bytes() {
		t.Errorf("%d bytes were fetched, want %d", fetched, built.Bytes())
	}
	if got := kinds(h.contents(t))["blob"]; got != 4 {
		t.Errorf("containerd has %d blobs, want index, manifest, configuration and layer", got)
	}
	other := r.PushIndex(t, "web:v2", registrytest.Image{Arch: "s390x"}, registrytest.Image{OS: "windows"})
	_, err := s.Pull(t.Context(), "", refOf(other), nil)
	wantCode(t, err, bourse.CodeInvalid)
	if err == nil || !strings.Contains(err.Error(), "linux/s390x, windows/") {
		t.Errorf("the error %v does not list the available platforms", err)
	}
}

// TestInterruptedDownload breaks each connection after part of the layer was sent. The same pull must resume the
// transfer where it stopped.
func TestInterruptedDownload(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(400_000)})
	r.Fault(of(p.Layers[0].Digest, registrytest.Fault{Cut: true, After: 150_000}))
	s := h.open(t, nil)
	pull(t, s, p.Name)
	if got := r.Stats(); got.BlobBytes != p.Bytes || got.Ranges != 2 {
		t.Errorf("%d bytes with %d resumptions, want %d with 2", got.BlobBytes, got.Ranges, p.Bytes)
	}
}

// TestResume breaks the connection in the middle of a layer and then refuses requests. A later
// pull must resume the transfer.
func TestResume(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(400_000)})
	var dead atomic.Bool
	r.Fault(func(req *http.Request) registrytest.Fault {
		switch {
		case dead.Load():
			return registrytest.Fault{Cut: true}
		case strings.HasSuffix(req.URL.Path, p.Layers[0].Digest.String()):
			dead.Store(true)
			return registrytest.Fault{Cut: true, After: 250_000}
		}
		return registrytest.Fault{}
	})
	s := h.open(t, nil)
	_, err := s.Pull(t.Context(), "", refOf(p), nil)
	wantCode(t, err, bourse.CodeUnavailable)
	if got := kinds(h.contents(t)); got["lease"] != 1 || got["ingest"] != 1 {
		t.Errorf("containerd has %v, want the lease and the partial layer to be kept", got)
	}
	r.Fault(nil)
	if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats().BlobBytes; got != p.Bytes {
		t.Errorf("%d bytes were fetched altogether, want %d", got, p.Bytes)
	}
	if got := kinds(h.contents(t)); got["lease"] != 0 || got["ingest"] != 0 {
		t.Errorf("containerd has %v, want neither lease nor ingest", got)
	}
}

// TestHang checks that a pull fails if the registry stops sending, at any stage.
func TestHang(t *testing.T) {
	for name, fault := range map[string]func(registrytest.Pushed) func(*http.Request) registrytest.Fault{
		"at the manifest": func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
			return of(p.Manifest.Digest, registrytest.Fault{Hang: true})
		},
		"before the layer": func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
			return of(p.Layers[0].Digest, registrytest.Fault{Hang: true})
		},
		"within the layer": func(p registrytest.Pushed) func(*http.Request) registrytest.Fault {
			return of(p.Layers[0].Digest, registrytest.Fault{Hang: true, After: 100_000})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, containerdtest.Start(t))
			r := registrytest.Start(t, registrytest.Options{})
			p := r.Push(t, "web:v1", registrytest.Image{Layers: random(300_000)})
			r.Fault(fault(p))
			s := h.open(t, func(c *image.Config) { c.Stall = 300 * time.Millisecond })
			_, err := s.Pull(t.Context(), "", refOf(p), nil)
			wantCode(t, err, bourse.CodeUnavailable)
			r.Fault(nil)
			if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
				t.Errorf("once the registry answers again: %v", err)
			}
		})
	}
}

// TestSlowIsNoHang checks that a transfer may take longer than Config.Stall as long as data keeps arriving.
func TestSlowIsNoHang(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(100_000)})
	r.Fault(of(p.Layers[0].Digest, registrytest.Fault{Rate: 100_000}))
	s := h.open(t, func(c *image.Config) { c.Stall = 500 * time.Millisecond })
	if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
		t.Error(err)
	}
}

// TestResolveWithin checks that Resolve uses the latest known digest of a tag if the registry
// does not respond.
func TestResolveWithin(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	s := h.open(t, func(c *image.Config) { c.ResolveTimeout = 200 * time.Millisecond })
	pull(t, s, p.Name)
	newer := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	if got, err := s.Resolve(t.Context(), "", p.Name); err != nil || got.Digest != newer.Digest {
		t.Errorf("a moved tag resolves to %s, %v, want %s", got.Digest, err, newer.Digest)
	}
	r.Fault(func(*http.Request) registrytest.Fault { return registrytest.Fault{Hang: true} })
	if got, err := s.Resolve(t.Context(), "", p.Name); err != nil || got.Digest != p.Digest {
		t.Errorf("resolved to %s, %v, want %s, the newest local one", got.Digest, err, p.Digest)
	}
	_, err := s.Resolve(t.Context(), "", r.Name("other:v1"))
	wantCode(t, err, bourse.CodeUnavailable)
}
