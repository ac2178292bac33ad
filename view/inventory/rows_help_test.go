package inventory

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// SchemaConn returns a connection to an empty database with the current schema, without a View.
func SchemaConn(t testing.TB) *sqlite.Conn {
	t.Helper()
	c, err := sqlite.OpenConn(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := schema.Create(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Plant writes rows as if site had published them, but without checking them. All machines and
// volumes count as placed.
func Plant(t testing.TB, c *sqlite.Conn, site bourse.WorkerID, rows ...wire.Row) {
	t.Helper()
	for _, r := range rows {
		names, args := []string{"site", "key", "epoch", "seq", "at", "hash"}, []any{site, r.Key, 1, 1, 1, 0}
		if schemaTables(t, c)[r.Table].Shared {
			names, args = append(names, "clock"), append(args, 1)
		}
		if r.Table == wire.TableMachines || r.Table == wire.TableVolumes {
			names, args = append(names, "placed"), append(args, true)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Columns)) {
			names, args = append(names, name), append(args, r.Columns[name])
		}
		sql := "INSERT OR REPLACE INTO " + r.Table + "_rows (" + strings.Join(names, ", ") + ") VALUES (" +
			strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ") + ")"
		if err := schema.Run(c, sql, args...); err != nil {
			t.Fatalf("%s %s: %v", r.Table, r.Key, err)
		}
	}
}

// hear records when a site was last reachable, and whether it still is.
func hear(t testing.TB, c *sqlite.Conn, site bourse.WorkerID, alive bool, at time.Time) {
	t.Helper()
	if err := schema.Run(c, "INSERT OR REPLACE INTO sites (site, alive, heard_at) VALUES (?, ?, ?)", site, alive, at.UnixNano()); err != nil {
		t.Fatal(err)
	}
}

func schemaTables(t testing.TB, c *sqlite.Conn) schema.Tables {
	t.Helper()
	all, err := schema.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anyTime draws times that records may contain.
func anyTime(t *rapid.T) time.Time {
	return time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "time")).UTC()
}

func anyText(t *rapid.T) string {
	return rapid.StringMatching(`[ -~äß€<>&"\\]{0,12}`).Draw(t, "text")
}

// AnyMachine draws a machine as in a worker's store: with events, and with its lease's nonce.
func AnyMachine(t *rapid.T) bourse.Machine {
	m := bourse.Machine{
		ID: bourse.MachineID(rapid.StringMatching(`[0-9a-f]{14}`).Draw(t, "id")), Name: anyText(t), App: "shop", Worker: "w1",
		Region: "gru", Order: bourse.OrderID(anyText(t)), Instance: bourse.InstanceID(anyText(t)),
		State: rapid.SampledFrom(bourse.States()).Draw(t, "state"), Cordoned: rapid.Bool().Draw(t, "cordoned"),
		Boot: bourse.Boot{Number: rapid.IntRange(0, 9).Draw(t, "number"), PID: 7}, CreatedAt: anyTime(t), UpdatedAt: anyTime(t),
	}
	m.Config = anyConfig(t)
	if rapid.Bool().Draw(t, "takes") {
		m.Takes = bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: 125}, {Resource: bourse.ResourceMemory, Amount: 256}}
	}
	if rapid.Bool().Draw(t, "resolved") {
		m.Image = &bourse.ImageRef{Registry: "r.example", Repository: anyText(t), Digest: "sha256:ab", Labels: map[string]string{"a": anyText(t)}}
		m.PrivateIP, m.Network = netip.MustParseAddr("fdaa::7"), anyText(t)
	}
	if rapid.Bool().Draw(t, "leased") {
		m.Lease = &bourse.Lease{Nonce: "secret-nonce", Owner: anyText(t), Description: anyText(t), ExpiresAt: anyTime(t)}
	}
	if rapid.Bool().Draw(t, "ended") {
		m.Boot.Exit = &bourse.Exit{Code: -1, Signal: 9, Error: anyText(t), At: anyTime(t)}
		m.Boot.Restarts = []time.Time{anyTime(t)}
	}
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		e := bourse.Event{ID: bourse.EventID(anyText(t)), Type: bourse.EventStart, From: m.State, Source: bourse.SourceUser, At: anyTime(t)}
		if rapid.Bool().Draw(t, "exit") {
			e.Exit = &bourse.ExitEvent{Exit: bourse.Exit{Code: 3, At: anyTime(t)}, RestartCount: 2}
		}
		m.LastEvents = append(m.LastEvents, e)
	}
	return m
}

func anyVolume(t *rapid.T) bourse.Volume {
	v := bourse.Volume{
		ID: bourse.VolumeID(rapid.StringMatching(`vol_[0-9a-z]{16}`).Draw(t, "id")), App: "shop", Worker: "w1", Region: "gru",
		Order: bourse.OrderID(anyText(t)), State: rapid.SampledFrom([]bourse.VolumeState{bourse.VolumeCreating, bourse.VolumeCreated, bourse.VolumeFailed}).Draw(t, "state"),
		Machine: bourse.MachineID(anyText(t)), Error: anyText(t), CreatedAt: anyTime(t), UpdatedAt: anyTime(t),
		Spec: bourse.VolumeOrder{Name: anyText(t), SizeGB: rapid.Int64().Draw(t, "size"), Encrypted: rapid.Bool().Draw(t, "encrypted"), FSType: "ext4", RetentionDays: 5},
	}
	if rapid.Bool().Draw(t, "for a machine") {
		v.Spec.Compute = &bourse.Guest{CPUs: 2}
		v.Takes = bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: 3072}}
	}
	for range rapid.IntRange(0, 2*maxSnapshots).Draw(t, "snapshots") {
		v.Snapshots = append(v.Snapshots, bourse.Snapshot{ID: bourse.SnapshotID(anyText(t)), Bytes: 7, State: bourse.SnapshotCreated, CreatedAt: anyTime(t)})
	}
	return v
}

func anyConfig(t *rapid.T) bourse.Config {
	c := bourse.Config{Image: anyText(t), Guest: &bourse.Guest{CPUKind: bourse.CPUShared, CPUs: 1, MemoryMB: 256}}
	c.Init.Cmd = []string{"sleep", anyText(t)}
	if rapid.Bool().Draw(t, "more") {
		c.Env = map[string]string{"A": anyText(t)}
		c.Metadata = map[string]string{"k<&": anyText(t)}
		c.Restart, c.AutoDestroy = &bourse.Restart{Policy: bourse.RestartAlways}, true
		c.StopConfig = &bourse.StopConfig{Signal: "SIGTERM", Timeout: bourse.Duration(3 * time.Second)}
		c.Requirements = bourse.Requirements{"slots": {Count: 3}, "arch": {Label: "arm64"}}
		c.Services = []byte(`[{"internal_port":8080,"protocol":"tcp","x":"<&>"}]`)
		c.Schedule, c.Standbys, c.DNS = bourse.Daily, []bourse.MachineID{"148e21ea1d5301"}, &bourse.DNS{Hostname: anyText(t)}
	}
	return c
}
