package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

func IDs(list []Listed) string {
	var names []string
	for _, l := range list {
		names = append(names, fmt.Sprintf("%s@%s", strings.TrimLeft(string(l.ID), "0"), l.Worker))
	}
	return strings.Join(names, " ")
}

func AMachine(n int, app bourse.AppName, region bourse.Region, created int64) wire.Row {
	return MachineRow(&bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%014x", n)), App: app, Region: region, CreatedAt: time.Unix(created, 0), State: bourse.StateStarted,
		Config: bourse.Config{Image: "host"},
	})
}

func TestMachinesByFilter(t *testing.T) {
	c := SchemaConn(t)
	Plant(t, c, "w1", AMachine(1, "shop", "gru", 3), AMachine(2, "shop", "gru", 1), AMachine(3, "blog", "gru", 2))
	Plant(t, c, "w2", AMachine(4, "shop", "mad", 1), AMachine(5, "blog", "mad", 5))
	for _, tt := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, "2@w1 4@w2 3@w1 1@w1 5@w2"},
		{Filter{App: "shop"}, "2@w1 4@w2 1@w1"},
		{Filter{App: "none"}, ""},
		{Filter{Worker: "w2"}, "4@w2 5@w2"},
		{Filter{Region: "gru"}, "2@w1 3@w1 1@w1"},
		{Filter{App: "shop", Region: "mad"}, "4@w2"},
		{Filter{App: "blog", Worker: "w1", Region: "gru"}, "3@w1"},
		{Filter{ID: "00000000000005"}, "5@w2"},
		{Filter{ID: "00000000000005", App: "shop"}, ""},
		{Filter{ID: "x' OR 1 --"}, ""},
	} {
		got, err := readMachines(c, tt.filter)
		if err != nil || IDs(got) != tt.want {
			t.Errorf("%+v: %q, %v; want %q", tt.filter, IDs(got), err, tt.want)
		}
	}
}

func TestHostStatus(t *testing.T) {
	c := SchemaConn(t)
	now := time.Unix(1e9, 5).UTC()
	Plant(t, c, "w1", AMachine(1, "shop", "gru", 1), WorkerRow(&bourse.Facts{Worker: "w1"}, false))
	Plant(t, c, "w2", AMachine(2, "shop", "gru", 2), WorkerRow(&bourse.Facts{Worker: "w2"}, false))
	Plant(t, c, "w3", AMachine(3, "shop", "gru", 3), WorkerRow(&bourse.Facts{Worker: "w3"}, false))
	hear(t, c, "w1", true, now)
	hear(t, c, "w2", false, now)
	machines, err := readMachines(c, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	workers, err := readWorkers(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status machinesapi.HostStatus
		heard  time.Time
	}{{machinesapi.HostOK, now}, {machinesapi.HostUnreachable, now}, {machinesapi.HostUnknown, time.Time{}}} {
		if got := machines[i]; got.HostStatus != want.status || !got.HeardAt.Equal(want.heard) {
			t.Errorf("machine %s: %s, heard %s; want %v", got.ID, got.HostStatus, got.HeardAt, want)
		}
		if got := workers[i]; got.HostStatus != want.status || !got.HeardAt.Equal(want.heard) {
			t.Errorf("worker %s: %s, heard %s; want %v", got.ID, got.HostStatus, got.HeardAt, want)
		}
	}
}

// garbage contains values for a JSON column that no version of the program writes.
var garbage = []string{
	"", "no json", "{", "null", "5", `"x"`, `["x"]`, `[["x"]]`, `{"guest":5}`, `[{"resource":"cpu","amount":-1}]`,
	`[{"resource":"cpu","amount":1e300}]`, `{"image":5,"exit":"x","owner":[]}`, strings.Repeat("[", 20000), "\xff\x00",
}

// untriggered is like SchemaConn, but omits the triggers, which would reject garbage.
func untriggered(t testing.TB) *sqlite.Conn {
	t.Helper()
	c := SchemaConn(t)
	for _, name := range ask(t, c, "SELECT name FROM sqlite_schema WHERE type = 'trigger'") {
		if err := schema.Run(c, "DROP TRIGGER "+name); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestGarbageHidesNoMachine checks that a hostile or newer site's values in a row neither make a
// list fail nor hide the machine.
func TestGarbageHidesNoMachine(t *testing.T) {
	c := untriggered(t)
	for _, column := range []string{"config", "takes", "boot", "lease", "events"} {
		for _, text := range garbage {
			Plant(t, c, "w1", AMachine(1, "shop", "gru", 1))
			bad := AMachine(2, "shop", "gru", 2)
			bad.Columns[column] = text
			Plant(t, c, "evil", bad)
			got, err := readMachines(c, Filter{App: "shop"})
			if err != nil || IDs(got) != "1@w1 2@evil" {
				t.Fatalf("%s = %.40q: %q, %v", column, text, IDs(got), err)
			}
			if err := got[1].Takes.Validate(); err != nil {
				t.Errorf("%s = %.40q: %v", column, text, err)
			}
			if column == "config" && !json.Valid([]byte(text)) {
				if diff := cmp.Diff(bourse.Config{}, got[1].Config); diff != "" {
					t.Errorf("a config read from garbage:\n%s", diff)
				}
			}
		}
	}
}

func TestGarbageHidesNoWorker(t *testing.T) {
	c := SchemaConn(t)
	for _, column := range []string{"free", "labels", "capacity", "drivers"} {
		for _, text := range garbage {
			bad := WorkerRow(&bourse.Facts{Worker: "evil", Region: "gru"}, false)
			bad.Columns[column] = text
			Plant(t, c, "evil", bad, WorkerRow(&bourse.Facts{Worker: "w1"}, false)) // "evil" also claims w1's row
			Plant(t, c, "w1", WorkerRow(&bourse.Facts{Worker: "w1", Region: "mad"}, false))
			got, err := readWorkers(c)
			if err != nil || len(got) != 2 || got[0].ID != "evil" || got[1].ID != "w1" || got[1].Region != "mad" {
				t.Fatalf("%s = %.40q: %+v, %v", column, text, got, err)
			}
			if err := got[0].Free.Validate(); err != nil {
				t.Errorf("%s = %.40q: %v", column, text, err)
			}
		}
	}
}

func TestMachineWithoutAnIDIsIgnored(t *testing.T) {
	c := SchemaConn(t)
	bad := AMachine(1, "shop", "gru", 1)
	bad.Key = "../../secret"
	Plant(t, c, "evil", bad)
	got, err := readMachines(c, Filter{})
	if err != nil || len(got) != 0 {
		t.Errorf("%q, %v; want none", IDs(got), err)
	}
}

// TestTwoOwnersOfOneID checks that the tag in an ID determines its owner, regardless of which
// worker has more rows.
func TestTwoOwnersOfOneID(t *testing.T) {
	for _, tt := range []struct {
		name         string
		evil, honest bourse.WorkerTag
		want         string
	}{
		{"by the tag", 2, 1, "10000000001@w1"},
		{"the tag's owner has the later name", 1, 2, "10000000001@evil"},
		{"nobody owns the tag: the first name wins", 2, 2, "10000000001@evil"},
		{"both claim the tag: the first name wins", 1, 1, "10000000001@evil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := SchemaConn(t)
			for site, tag := range map[bourse.WorkerID]bourse.WorkerTag{"evil": tt.evil, "w1": tt.honest} {
				Plant(t, c, site, AMachine(0x10000000001, "shop", "gru", 1), WorkerRow(&bourse.Facts{Worker: site, Tag: tag << 8}, false))
			}
			for _, f := range []Filter{{}, {App: "shop"}, {ID: "00010000000001"}} {
				got, err := readMachines(c, f)
				if err != nil || IDs(got) != tt.want {
					t.Errorf("%+v: %q, %v; want %q", f, IDs(got), err, tt.want)
				}
			}
		})
	}
}

// FuzzReadMachine checks that a machine can be read whatever a site has written into its
// columns, and that the result fits into a row again.
func FuzzReadMachine(f *testing.F) {
	for _, text := range garbage {
		f.Add(text, text, text, text, text, int64(1), int64(-1))
	}
	f.Add(`{"image":"host","guest":{"cpus":2}}`, `[{"resource":"cpu","amount":125}]`, `{"number":1,"exit":{"code":1,"at":"2026-01-01T00:00:00Z"}}`,
		`{"owner":"me","expires_at":"2026-01-01T00:00:00Z","nonce":"x"}`, `[{"id":"1","type":"exit","exit":{"code":2}}]`, int64(5), int64(6))
	c := untriggered(f)
	all := schemaTables(f, c)
	f.Fuzz(func(t *testing.T, config, takes, boot, lease, events string, created, updated int64) {
		row := AMachine(1, "shop", "gru", 1)
		maps.Copy(row.Columns, map[string]wire.Value{
			"config": config, "takes": takes, "boot": boot, "lease": lease, "events": events, "created_at": created, "updated_at": updated,
		})
		Plant(t, c, "w1", row)
		got, err := readMachines(c, Filter{App: "shop"})
		if err != nil || len(got) != 1 {
			t.Fatalf("%d machines, %v", len(got), err)
		}
		if m := got[0]; m.Lease != nil && m.Lease.Nonce != "" {
			t.Error("a nonce was read")
		}
		if _, err := all.Check("w1", MachineRow(&got[0].Machine)); err != nil {
			t.Errorf("the machine that was read does not fit into a row: %v", err)
		}
	})
}
