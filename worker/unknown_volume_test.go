package worker

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
)

// The host has a volume with a snapshot that the store does not know. The worker
// refuses to start, names the volume, and removes neither. With --forget-machines it
// removes both.
func TestUnknownVolumesAreNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		v := h.placeVolume()
		h.volumeReaches(v.ID, bourse.VolumeCreated)
		if _, err := h.volumes.Snapshot(t.Context(), v.ID); err != nil {
			t.Fatal(err)
		}
		h.crash()
		setup := h.setup
		h.dir = t.TempDir() // as if the data directory's disk were not mounted
		err := h.tryStart(nil)
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), string(v.ID)) ||
			!strings.Contains(err.Error(), "--forget-machines") {
			t.Errorf("start: %v, want an error that names volume %s", err, v.ID)
		}
		_, there := vols.Read(v.ID)
		if snapshots, _ := vols.Kept(); !there || snapshots != 1 {
			t.Errorf("volume exists: %t, snapshots: %d; want both unchanged", there, snapshots)
		}
		h.setup = func(c *Config) { setup(c); c.Forget = true }
		h.start(nil)
		_, there = vols.Read(v.ID)
		if snapshots, _ := vols.Kept(); there || snapshots != 0 {
			t.Errorf("volume exists: %t, snapshots: %d; want both removed", there, snapshots)
		}
		h.crash()
	})
}
