package view

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// olderSchema returns a schema in which some columns are not known yet, and
// what adds them.
func olderSchema(t *testing.T) schema.Definition {
	t.Helper()
	older, upgrade := schema.SQL, ""
	for table, columns := range map[string][]string{
		"machine_rows": {"image", "private_ip", "network"},
		"volume_rows":  {"order_id", "spec", "takes", "error", "snapshots", "updated_at"},
	} {
		before, rest, ok := strings.Cut(older, "CREATE TABLE "+table+" (")
		body, after, ended := strings.Cut(rest, "\n  PRIMARY KEY")
		if !ok || !ended {
			t.Fatalf("the schema has no table %s", table)
		}
		for _, name := range columns {
			line := regexp.MustCompile(`\n  ` + name + ` +([^,]*),[^\n]*`).FindStringSubmatch(body)
			if line == nil {
				t.Fatalf("table %s has no column %s", table, name)
			}
			body = strings.Replace(body, line[0], "", 1)
			upgrade += "ALTER TABLE " + table + " ADD COLUMN " + name + " " + line[1] + ";\n"
		}
		older = before + "CREATE TABLE " + table + " (" + body + "\n  PRIMARY KEY" + after
	}
	return schema.Definition{First: 1, Steps: []string{older, upgrade}}
}

// TestMembersOfTwoReleases lets a member without some columns and one of ours
// receive the same, of both: they agree, what the older one does not know it
// keeps for the day it is upgraded, and what it does not tell reads as nothing.
func TestMembersOfTwoReleases(t *testing.T) {
	path := tempFile(t)
	newer := olderSchema(t)
	older := schema.Definition{First: newer.First, Steps: newer.Steps[:1]}
	v, err := openWith(withTestDefaults(Config{Site: "old", Path: path}), older)
	if err != nil {
		t.Fatal(err)
	}
	old, ours := startView(t, v), startMember(t, Config{Site: "w1"})
	m := bourse.Machine{
		ID: "00000000000001", App: "shop", Worker: "w1", Image: &bourse.ImageRef{Registry: "r", Repository: "a/b", Digest: "sha256:ab"},
		PrivateIP: netip.MustParseAddr("fdaa::7"), UpdatedAt: time.Unix(1, 0).UTC(),
	}
	vol := bourse.Volume{
		ID: "vol_0000100000000001", App: "shop", Worker: "w1", Order: "o1", Spec: bourse.VolumeOrder{Name: "data", SizeGB: 3, RetentionDays: 5}, Error: "disk full",
		Snapshots: []bourse.Snapshot{{ID: "vs_1", Bytes: 7}}, UpdatedAt: time.Unix(2, 0).UTC(),
	}
	ours.publish(inventory.MachineRow(&m), inventory.VolumeRow(&vol))
	old.publish(
		wire.Row{Table: wire.TableMachines, Key: "00000000000002", Columns: map[string]wire.Value{"app": "shop", "state": "started"}},
		wire.Row{Table: wire.TableVolumes, Key: "vol_0000100000000002", Columns: map[string]wire.Value{"app": "shop", "name": "old", "size_gb": int64(1)}})
	told := old.told
	old.take(ours.told...)
	ours.take(told...)
	sameRows(t, ours, old)

	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	v, err = openWith(withTestDefaults(Config{Site: "old", Path: path}), newer)
	if err != nil {
		t.Fatal(err)
	}
	upgraded := startView(t, v)
	sameRows(t, ours, upgraded)
	for _, one := range []*member{ours, upgraded} {
		machines, err := Ask(t.Context(), one.View, inventory.Machines(inventory.Filter{App: "shop"}))
		if err != nil || len(machines) != 2 {
			t.Fatalf("%d machines, %v", len(machines), err)
		}
		if d := cmp.Diff([]bourse.Machine{m, {ID: "00000000000002", App: "shop", Worker: "old", State: "started"}}, []bourse.Machine{machines[0].Machine, machines[1].Machine}, cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("machines (-want +got):\n%s", d)
		}
		volumes, err := Ask(t.Context(), one.View, inventory.Volumes(inventory.VolumeFilter{App: "shop"}))
		if err != nil || len(volumes) != 2 {
			t.Fatalf("%d volumes, %v", len(volumes), err)
		}
		theirs := bourse.Volume{ID: "vol_0000100000000002", App: "shop", Worker: "old", Spec: bourse.VolumeOrder{Name: "old", SizeGB: 1}}
		if d := cmp.Diff([]bourse.Volume{vol, theirs}, []bourse.Volume{volumes[0].Volume, volumes[1].Volume}); d != "" {
			t.Errorf("volumes (-want +got):\n%s", d)
		}
	}
}
