package worker

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// Soon after an image is pulled or removed, the view lists exactly the images on the host, whatever it listed before,
// and even if the view or the image store failed in the meantime.
func TestTheViewListsTheImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		v.images["sha256:old"] = bourse.Image{Ref: bourse.ImageRef{Digest: "sha256:old"}} // left over from an earlier start
		h := newRigged(t, newRig)
		h.setup = func(c *Config) { h.rig.setup(c); c.View = v }
		h.start(nil)
		defer func() { h.crash() }()
		knows := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			v.mu.Lock()
			defer v.mu.Unlock()
			if got := slices.Sorted(maps.Keys(v.images)); !slices.Equal(got, want) {
				t.Errorf("%s: the view has images %v, want %v", what, got, want)
			}
		}
		digest := h.rig.images.registry[rigImage].Ref.Digest
		knows("at the start")
		m := h.place(image(rigImage))
		knows("pulled", digest)
		before := v.counted().updates
		knows("nothing new", digest)
		if n := v.counted().updates - before; n != 0 {
			t.Errorf("%d updates without a change", n)
		}
		v.lose()
		knows("lost", digest)
		if err := h.machines.Discard(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
		h.reaches(m.ID, bourse.StateDestroyed)
		if _, err := h.rig.images.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows("pruned")
		h.rig.images.failing(func(_ context.Context, call string, _ bool) error {
			if call == "List" {
				return bourse.Errorf(bourse.CodeUnavailable, "containerd is unavailable")
			}
			return nil
		})
		m = h.place(image(rigImage))
		knows("cannot be listed")
		v.mu.Lock()
		if _, ok := v.machines[m.ID]; !ok {
			t.Error("a machine is missing from the view because images cannot be listed")
		}
		v.mu.Unlock()
		h.rig.images.failing(nil)
		knows("listed again", digest)
		h.crash()
		h.setup = func(c *Config) { c.View = v } // without images
		h.start(nil)
		knows("a worker without images")
	})
}
