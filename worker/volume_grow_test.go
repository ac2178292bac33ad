package worker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// A volume that exceeds the threshold in its machine's mount grows by the configured
// step, up to the limit. If the worker has no room, it adds one event to the machine
// and tries again later.
func TestAFullVolumeGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer h.crash()
		v := h.placeVolume() // takes 10 of 100 GB
		m := h.place(mounts(v.ID), func(o *bourse.Order) {
			mount := &o.Config.Mounts[0]
			mount.ExtendThresholdPercent, mount.AddSizeGB, mount.SizeGBLimit = 80, 20, 90
		})
		grown := func(what string, used, want int64) {
			t.Helper()
			vols.Use(v.ID, used)
			time.Sleep(20 * time.Minute)
			if v = h.getVolume(v.ID); v.Spec.SizeGB != want || v.State != bourse.VolumeCreated {
				t.Errorf("%s: %s with %d GB, want %d", what, v.State, v.Spec.SizeGB, want)
			}
			if mount := h.get(m.ID).Config.Mounts[0]; mount.SizeGB != want {
				t.Errorf("%s: the machine's mount has %d GB, want %d", what, mount.SizeGB, want)
			}
		}
		growEvents := func() (out []string) {
			for _, e := range h.get(m.ID).LastEvents {
				if e.Type == bourse.EventExtend {
					out = append(out, e.Reason)
				}
			}
			return out
		}
		grown("7 GB are used", 7<<18, 10)
		grown("8 GB are used", 8<<18, 30)
		if got := growEvents(); len(got) != 1 || !strings.Contains(got[0], string(v.ID)) || !strings.Contains(got[0], "30 GB") {
			t.Errorf("events %q", got)
		}
		other := h.placeVolume(func(o *bourse.VolumeOrder) { o.SizeGB = 60 })
		grown("there is no room", 30<<18, 30)
		if got := growEvents(); len(got) != 2 || !strings.Contains(got[0], "is 100 % full and cannot grow to 50 GB: ") {
			t.Errorf("events %q", got)
		}
		if _, err := h.volumes.Destroy(t.Context(), other.ID); err != nil {
			t.Fatal(err)
		}
		grown("there is room", 80<<18, 90)
		grown("at its limit", 90<<18, 90)
		if got := growEvents(); len(got) != 5 {
			t.Errorf("events %q", got)
		}
		h.verify()
	})
}
