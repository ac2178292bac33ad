package image_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestPull resolves and pulls an image by its tag, and checks that a later store still has it.
func TestPull(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "team/web:v1", registrytest.Image{
		Layers: append(random(100_000, 50_000), registrytest.Layer{"etc/hello": {Data: []byte("hello")}}),
		Config: ocispec.ImageConfig{Labels: map[string]string{"version": "1"}},
	})
	s := h.open(t, nil)
	stop := run(t, s)
	if _, known := s.Missing("", p.Name); known {
		t.Error("the size of an unknown image is known")
	}
	ref, err := s.Resolve(t.Context(), "", p.Name)
	if err != nil {
		t.Fatal(err)
	}
	if want := refOf(p); ref.String() != want.String() {
		t.Errorf("resolved to %s, want %s", ref, want)
	}
	if got, known := s.Missing("", p.Name); !known || got != p.Bytes {
		t.Errorf("missing %d bytes, %t, once the manifest is known; want %d", got, known, p.Bytes)
	}
	got, err := s.Pull(t.Context(), "", ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := bourse.Image{Ref: ref, Bytes: p.Bytes, Disk: got.Disk, UsedAt: got.UsedAt}
	want.Ref.Labels = map[string]string{"version": "1"}
	if diff := cmp.Diff(want, got); diff != "" || got.Disk < 2*p.Bytes || time.Since(got.UsedAt) > waitLimit {
		t.Errorf("pulled (-want +got):\n%s; disk %d, used %s", diff, got.Disk, got.UsedAt)
	}
	if got, known := s.Missing("", p.Name); !known || got != 0 || !s.Has(ref) {
		t.Errorf("missing %d bytes, %t, of a present image", got, known)
	}
	if !has(t, h.rootfs(t, ref), "etc/hello", "hello") {
		t.Error("the image has no etc/hello")
	}
	if got := kinds(h.contents(t)); got["image"] != 1 || got["lease"] != 0 || got["ingest"] != 0 || got["blob"] != 5 {
		t.Errorf("containerd has %v, want one image, of 5 blobs, and no lease and no ingest", got)
	}
	list, err := s.List(t.Context())
	if diff := cmp.Diff([]bourse.Image{want}, list); diff != "" || err != nil {
		t.Errorf("listed (-want +got):\n%s%v", diff, err)
	}
	stop()
	r.Stop()
	again := h.open(t, nil)
	run(t, again)
	eventually(t, "image in a later run", func() bool { return again.Has(ref) })
	if got, err := again.Resolve(t.Context(), "", p.Name); err != nil || got.Digest != p.Digest {
		t.Errorf("without the registry, the tag resolves to %q, %v", got.Digest, err)
	}
	list, _ = again.List(t.Context())
	list[0].UsedAt = want.UsedAt
	if diff := cmp.Diff([]bourse.Image{want}, list); diff != "" {
		t.Errorf("listed by a later run (-want +got):\n%s", diff)
	}
}

// TestPresentNeedsNoNetwork checks that an image on the worker can be used by its digest without
// its registry.
func TestPresentNeedsNoNetwork(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	s := h.open(t, nil)
	pull(t, s, p.Name)
	r.ResetStats()
	if got := pull(t, s, p.Ref()); got.Ref.Digest != p.Digest {
		t.Errorf("pulled %s", got.Ref)
	}
	if got := r.Stats(); got.Requests != 0 {
		t.Errorf("the registry received %d requests", got.Requests)
	}
}

// TestShared has twenty callers pull the same image concurrently.
func TestShared(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(300_000, 200_000)})
	r.Fault(func(req *http.Request) registrytest.Fault {
		if registrytest.IsBlob(req) {
			return registrytest.Fault{Rate: 1 << 20}
		}
		return registrytest.Fault{}
	})
	s := h.open(t, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ref, err := s.Resolve(t.Context(), "", p.Name)
			if err == nil {
				_, err = s.Pull(t.Context(), "", ref, nil)
			}
			if err != nil {
				t.Errorf("one of twenty: %v", err)
			}
		})
	}
	wg.Wait()
	if got := r.Stats(); got.BlobBytes != p.Bytes || got.Blobs != 3 {
		t.Errorf("%d bytes in %d requests for blobs, want %d in 3", got.BlobBytes, got.Blobs, p.Bytes)
	}
}

// TestSharedLayers pulls a second image with the same base layers.
func TestSharedLayers(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	base, own := random(200_000), random(10_000)
	first := r.Push(t, "base:v1", registrytest.Image{Layers: base})
	second := r.Push(t, "web:v1", registrytest.Image{Layers: append(base, own...)})
	s := h.open(t, nil)
	pull(t, s, first.Name)
	ref, err := s.Resolve(t.Context(), "", second.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := second.Bytes - first.Layers[0].Size
	if got, known := s.Missing("", second.Name); !known || got != want {
		t.Errorf("missing %d bytes, %t, want %d", got, known, want)
	}
	r.ResetStats()
	if _, err := s.Pull(t.Context(), "", ref, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats().BlobBytes; got != want {
		t.Errorf("%d bytes were fetched, want %d", got, want)
	}
}

// TestProgress checks the progress reports of a pull that takes half a second.
func TestProgress(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(500_000)})
	r.Fault(func(*http.Request) registrytest.Fault { return registrytest.Fault{Rate: 1 << 20} })
	s := h.open(t, nil)
	ref, err := s.Resolve(t.Context(), "", p.Name)
	if err != nil {
		t.Fatal(err)
	}
	var got []bourse.PullProgress
	if _, err := s.Pull(t.Context(), "", ref, func(i bourse.Image) {
		if i.Ref.Digest != p.Digest {
			t.Errorf("progress of %s", i.Ref)
		}
		got = append(got, *i.Pull)
	}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Bytes < got[i-1].Bytes || got[i].Bytes > p.Bytes {
			t.Errorf("progress went from %+v to %+v", got[i-1], got[i])
		}
	}
	last := bourse.PullProgress{Status: "done", Bytes: p.Bytes, Total: p.Bytes}
	if len(got) < 3 || got[len(got)-1] != last {
		t.Errorf("progress %+v, want at least 3, the last %+v", got, last)
	}
}

// TestWaitersLeave checks that a pull continues after its only waiter has left, and stops if
// nobody waits again within Config.Linger.
func TestWaitersLeave(t *testing.T) {
	for name, tc := range map[string]struct {
		linger time.Duration
		ends   bool
	}{
		"goes on": {linger: waitLimit, ends: true},
		"stops":   {linger: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, containerdtest.Start(t))
			r := registrytest.Start(t, registrytest.Options{})
			p := r.Push(t, "web:v1", registrytest.Image{Layers: random(300_000)})
			arrived := make(chan struct{}, 10)
			r.Fault(func(req *http.Request) registrytest.Fault {
				if registrytest.IsBlob(req) {
					arrived <- struct{}{}
					return registrytest.Fault{Rate: 1 << 20}
				}
				return registrytest.Fault{}
			})
			s := h.open(t, func(c *image.Config) { c.Linger = tc.linger })
			ref := refOf(p)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-arrived
				cancel()
			}()
			_, err := s.Pull(ctx, "", ref, nil)
			wantCode(t, err, bourse.CodeCanceled)
			eventually(t, "the pull's end", func() bool {
				list, _ := s.List(t.Context())
				return len(list) == 0 || list[0].Pull == nil
			})
			if got := s.Has(ref); got != tc.ends {
				t.Errorf("the image is present: %t, want %t", got, tc.ends)
			}
			if _, err := s.Pull(t.Context(), "", ref, nil); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestUseBeforeRecordsAreRead uses a store that has just been opened and has not read
// containerd's records yet.
func TestUseBeforeRecordsAreRead(t *testing.T) {
	t.Parallel()
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	pull(t, h.open(t, nil), p.Name)
	same := p
	same.Name = r.Name("web:v2")
	r.PushBuilt(t, "web:v2", p.Built)
	r.ResetStats()
	pull(t, h.open(t, nil), same.Name)
	if got := r.Stats(); got.Blobs != 0 {
		t.Errorf("%d blobs were fetched again", got.Blobs)
	}
	r.Stop()
	for _, name := range []string{p.Name, same.Name} {
		if got := pull(t, h.open(t, nil), name); got.Ref.Digest != p.Digest {
			t.Errorf("without the registry, %s is %s", name, got.Ref)
		}
	}
}

// TestNothingStaysRunning checks that a closed store leaves no goroutines behind, even after a pull whose waiter has
// left.
func TestNothingStaysRunning(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(100_000)})
	held := r.Push(t, "held:v1", registrytest.Image{Layers: random(100_000)})
	before := goleak.IgnoreCurrent()
	s := h.open(t, nil)
	stop := run(t, s)
	pull(t, s, p.Name)
	r.Fault(of(held.Config.Digest, registrytest.Fault{Hang: true}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Pull(ctx, "", refOf(held), nil)
	wantCode(t, err, bourse.CodeTimeout)
	stop()
	r.Stop()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	// The lease of the stopped pull remains for a later run.
	for _, l := range h.contents(t)["lease"] {
		if err := h.client.LeasesService().Delete(t.Context(), leases.Lease{ID: l}, leases.SynchronousDelete); err != nil {
			t.Error(err)
		}
	}
}
