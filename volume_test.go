package bourse_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func TestVolumeIDsAreAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := bourse.WorkerTag(rapid.Uint32Range(1, 1<<24-1).Draw(t, "tag"))
		v, s := bourse.NewVolumeID(tag), bourse.NewSnapshotID(tag)
		if v.Validate() != nil || v.Tag() != tag || s.Validate() != nil || s.Tag() != tag {
			t.Errorf("got %s with tag %s and %s with tag %s, want valid IDs with tag %s", v, v.Tag(), s, s.Tag(), tag)
		}
	})
	for _, id := range []bourse.VolumeID{"", "vol_", "vol_zzzzz00000000000", "vs_000010000000000", "vol_0000100000000000x", "vol_00001/../../etc0", "VOL_0000100000000000"} {
		if id.Tag() != 0 {
			t.Errorf("%q: got tag %s, want none", id, id.Tag())
		}
	}
}

func TestVolumeOrderIsChecked(t *testing.T) {
	good := bourse.VolumeOrder{Name: "data"}.WithDefaults()
	if err := good.Validate(); err != nil || good.SizeGB != 3 || good.FSType != "ext4" || good.RetentionDays != 5 {
		t.Errorf("%+v: %v", good, err)
	}
	for what, change := range map[string]func(*bourse.VolumeOrder){
		"no name":          func(v *bourse.VolumeOrder) { v.Name = "" },
		"a path as name":   func(v *bourse.VolumeOrder) { v.Name = "../etc" },
		"a long name":      func(v *bourse.VolumeOrder) { v.Name = strings.Repeat("a", 31) },
		"negative size":    func(v *bourse.VolumeOrder) { v.SizeGB = -1 },
		"a huge size":      func(v *bourse.VolumeOrder) { v.SizeGB = 1 << 40 },
		"raw":              func(v *bourse.VolumeOrder) { v.FSType = "raw" },
		"two sources":      func(v *bourse.VolumeOrder) { v.Snapshot, v.Source = bourse.NewSnapshotID(1), bourse.NewVolumeID(1) },
		"a strange source": func(v *bourse.VolumeOrder) { v.Source = "vol_../../../../etc" },
		"long retention":   func(v *bourse.VolumeOrder) { v.RetentionDays = 61 },
		"a hopeless guest": func(v *bourse.VolumeOrder) { v.Compute = &bourse.Guest{CPUs: -1} },
	} {
		v := good
		change(&v)
		if err := v.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: got error %v, want code invalid", what, err)
		}
	}
}

func TestVolumeStates(t *testing.T) {
	for _, path := range [][]bourse.VolumeState{
		{"", "creating", "created", "extending", "created", "destroying", "destroyed"},
		{"", "restoring", "created"},
		{"", "hydrating", "failed", "destroying"},
	} {
		for i := range path[1:] {
			if !path[i].CanBecome(path[i+1]) {
				t.Errorf("%q cannot become %q", path[i], path[i+1])
			}
		}
	}
	if bourse.VolumeDestroyed.CanBecome(bourse.VolumeCreated) || bourse.VolumeHydrating.Usable() || !bourse.VolumeExtending.Usable() {
		t.Error("got a destroyed volume that can be created again, a hydrating volume that is usable, or an extending one that is not")
	}
}
