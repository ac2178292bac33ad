package view

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// TestMembersOfTwoReleases lets a member without the columns of schema 2 and one
// of ours hear the same, of both: they agree, what the older one does not know it keeps for the
// day it is upgraded, and what it does not tell reads as nothing.
func TestMembersOfTwoReleases(t *testing.T) {
	path := tempFile(t)
	v, err := openWith(withTestDefaults(Config{Site: "old", Path: path}), []string{schema, schema4})
	if err != nil {
		t.Fatal(err)
	}
	older, ours := startView(t, v), startMember(t, Config{Site: "w1"})
	m := bourse.Machine{
		ID: "00000000000001", App: "shop", Worker: "w1", Image: &bourse.ImageRef{Registry: "r", Repository: "a/b", Digest: "sha256:ab"},
		PrivateIP: netip.MustParseAddr("fdaa::7"), UpdatedAt: time.Unix(1, 0).UTC(),
	}
	vol := bourse.Volume{
		ID: vol1, App: "shop", Worker: "w1", Order: "o1", Spec: bourse.VolumeOrder{Name: "data", SizeGB: 3, RetentionDays: 5}, Error: "disk full",
		Snapshots: []bourse.Snapshot{{ID: "vs_1", Bytes: 7}}, UpdatedAt: time.Unix(2, 0).UTC(),
	}
	ours.publish(MachineRow(&m), VolumeRow(&vol))
	older.publish(
		Row{Table: TableMachines, Key: "00000000000002", Columns: map[string]Value{"app": "shop", "state": "started"}},
		Row{Table: TableVolumes, Key: string(vol2), Columns: map[string]Value{"app": "shop", "name": "old", "size_gb": int64(1)}})
	told := older.told
	older.take(ours.told...)
	ours.take(told...)
	sameRows(t, ours, older)

	if err := older.stop(); err != nil {
		t.Fatal(err)
	}
	v, err = openWith(withTestDefaults(Config{Site: "old", Path: path}), []string{schema, schema4, schema2, schema3})
	if err != nil {
		t.Fatal(err)
	}
	upgraded := startView(t, v)
	sameRows(t, ours, upgraded)
	for _, one := range []*member{ours, upgraded} {
		machines, err := one.Machines(t.Context(), Filter{App: "shop"})
		if err != nil || len(machines) != 2 {
			t.Fatalf("%d machines, %v", len(machines), err)
		}
		if d := cmp.Diff([]bourse.Machine{m, {ID: "00000000000002", App: "shop", Worker: "old", State: "started"}}, []bourse.Machine{machines[0].Machine, machines[1].Machine}, byValue); d != "" {
			t.Errorf("machines (-want +got):\n%s", d)
		}
		volumes, err := one.Volumes(t.Context(), VolumeFilter{App: "shop"})
		if err != nil || len(volumes) != 2 {
			t.Fatalf("%d volumes, %v", len(volumes), err)
		}
		old := bourse.Volume{ID: vol2, App: "shop", Worker: "old", Spec: bourse.VolumeOrder{Name: "old", SizeGB: 1}}
		if d := cmp.Diff([]bourse.Volume{vol, old}, []bourse.Volume{volumes[0].Volume, volumes[1].Volume}); d != "" {
			t.Errorf("volumes (-want +got):\n%s", d)
		}
	}
}
