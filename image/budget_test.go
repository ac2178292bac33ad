package image_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// digests returns the digests of a store's images.
func digests(tb testing.TB, s *image.Store) []string {
	tb.Helper()
	list, err := s.List(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Ref.Digest)
	}
	slices.Sort(out)
	return out
}

func sorted(s ...string) []string {
	slices.Sort(s)
	return s
}

// TestTooLarge checks that an image that exceeds the budget is refused before its layers are
// fetched.
func TestTooLarge(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	small := r.Push(t, "small:v1", registrytest.Image{Layers: random(100_000)})
	large := r.Push(t, "large:v1", registrytest.Image{Layers: random(600_000, 600_000)})
	s := h.open(t, func(c *image.Config) { c.Budget = 1_000_000 })
	pull(t, s, small.Name)
	before := h.contents(t)
	r.ResetStats()
	_, err := s.Pull(t.Context(), "", refOf(large), nil)
	wantCode(t, err, bourse.CodeInsufficient)
	if got := r.Stats(); got.Blobs != 0 {
		t.Errorf("%d bytes were fetched before the image was refused", got.BlobBytes)
	}
	h.unchanged(t, before)
}

// TestEvict fills the budget and checks that the least recently used image is evicted, unless it
// is in use.
func TestEvict(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	var p [5]registrytest.Pushed
	for i := range p {
		p[i] = r.Push(t, string(rune('a'+i))+":v1", registrytest.Image{Layers: random(400_000)})
	}
	// Enough for two images of 400 kB that are as large unpacked.
	s := h.open(t, func(c *image.Config) { c.Budget = 2_000_000 })
	var mu sync.Mutex
	inUse := map[string]bool{}
	s.SetInUse(func(digest string) bool {
		mu.Lock()
		defer mu.Unlock()
		return inUse[digest]
	})
	use := func(p registrytest.Pushed, used bool) {
		mu.Lock()
		defer mu.Unlock()
		inUse[p.Digest] = used
	}
	check := func(what string, want ...registrytest.Pushed) {
		t.Helper()
		var names []string
		for _, p := range want {
			names = append(names, p.Digest)
		}
		if got := digests(t, s); !slices.Equal(got, sorted(names...)) {
			t.Errorf("%s: images %v are present, want %v", what, got, names)
		}
	}
	pull(t, s, p[0].Name)
	pull(t, s, p[1].Name)
	s.MarkUsed(p[0].Digest)
	pull(t, s, p[2].Name)
	check("the second was used less recently than the first", p[0], p[2])
	if got, known := s.Missing("", p[1].Name); !known || got != p[1].Bytes {
		t.Errorf("missing %d bytes, %t, of the evicted image, want %d", got, known, p[1].Bytes)
	}
	use(p[0], true)
	pull(t, s, p[3].Name)
	check("the first is in use", p[0], p[3])
	use(p[3], true)
	_, err := s.Pull(t.Context(), "", refOf(p[4]), nil)
	wantCode(t, err, bourse.CodeInsufficient)
	check("both are in use", p[0], p[3])
	wantCode(t, s.Remove(t.Context(), p[0].Digest), bourse.CodeFailedPrecondition)
	wantCode(t, s.Remove(t.Context(), p[1].Digest), bourse.CodeNotFound)
	use(p[3], false)
	gone, err := s.Prune(t.Context())
	if err != nil || len(gone) != 1 || gone[0].Ref.Digest != p[3].Digest {
		t.Errorf("pruned %v, %v, want the image that is not in use", gone, err)
	}
	check("pruned", p[0])
	if got := kinds(h.contents(t)); got["image"] != 1 || got["blob"] != 3 || got["snapshot"] != 1 || got["lease"] != 0 {
		t.Errorf("containerd has %v, want one image of 3 blobs and a snapshot", got)
	}
}

// TestBomb pulls a layer of 4 MB that unpacks to 4 GiB. The pull must fail once it exceeds the budget, and leave
// nothing behind.
func TestBomb(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "bomb:v1", registrytest.Image{Layers: random(10), Bomb: 4 << 30})
	s := h.open(t, func(c *image.Config) { c.Budget = 20 << 20 })
	before := h.contents(t)
	_, err := s.Pull(t.Context(), "", refOf(p), nil)
	wantCode(t, err, bourse.CodeInsufficient)
	h.unchanged(t, before)
}

// TestBudgetIsLowered checks that images that exceed a lowered budget are evicted at startup.
func TestBudgetIsLowered(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	first := r.Push(t, "a:v1", registrytest.Image{Layers: random(400_000)})
	second := r.Push(t, "b:v1", registrytest.Image{Layers: random(400_000)})
	s := h.open(t, nil)
	stop := run(t, s)
	pull(t, s, first.Name)
	pull(t, s, second.Name)
	s.MarkUsed(first.Digest)
	stop()
	lower := h.open(t, func(c *image.Config) { c.Budget = 1_000_000 })
	run(t, lower)
	eventually(t, "eviction", func() bool { return slices.Equal(digests(t, lower), []string{first.Digest}) })
}
