package inventory

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/view/schema"
)

// plenty returns a database with one row of each kind, with all columns set.
func plenty(t testing.TB) *sqlite.Conn {
	t.Helper()
	c, at := SchemaConn(t), peopleStart
	m := bourse.Machine{
		ID: "00000100000001", App: "shop", AppID: "1", Name: "web", Region: "gru", State: bourse.StateStarted, Instance: "i1", Order: "o1",
		CreatedAt: at, UpdatedAt: at, Cordoned: true, Network: "me/", PrivateIP: netip.MustParseAddr("fdaa::5"),
		Image: &bourse.ImageRef{Registry: "r", Repository: "a", Digest: "sha256:1"},
		Boot:  bourse.Boot{Number: 2, PID: 77, Port: 9000, Exit: &bourse.Exit{Code: 3, At: at}},
		Lease: &bourse.Lease{Owner: "ci", ExpiresAt: at},
		Config: bourse.Config{
			Image: "a", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, Metadata: map[string]string{"role": "web"},
			Mounts: []bourse.Mount{{Volume: "vol_1", Path: "/data"}},
		},
		LastEvents: []bourse.Event{{
			ID: "e2", Type: bourse.EventExit, From: bourse.StateStarted, State: bourse.StateStopped, Source: bourse.SourceWorker, At: at,
			Exit: &bourse.ExitEvent{Exit: bourse.Exit{Code: 3, Error: "lost", OOMKilled: true}},
		}},
	}
	m.Config.Checks = []byte(`{"up":{"port":8080}}`)
	m.Config.Services = []byte(`[{"internal_port":8080,"protocol":"tcp"}]`)
	v := bourse.Volume{
		ID: "vol_1", App: "shop", AppID: "1", Region: "gru", Order: "o2", State: bourse.VolumeCreated, Machine: m.ID, Error: "full",
		Spec: bourse.VolumeOrder{Name: "data", SizeGB: 3, Encrypted: true}, Snapshots: []bourse.Snapshot{{ID: "s1", CreatedAt: at}}, CreatedAt: at, UpdatedAt: at,
	}
	facts := bourse.Facts{
		Worker: "w1", Region: "gru", Tag: 1, Version: "0.2", Labels: map[string]string{"arch": "arm64"}, Drivers: []string{"process"}, Load: 0.5,
		Cordon: &bourse.Cordon{At: at}, Accounts: []bourse.Account{{Resource: "cpu", Total: 16000, Used: 125}, {Resource: "memory", Total: 8192, Used: 4097}},
	}
	Plant(t, c, "w1", MachineRow(&m), VolumeRow(&v), WorkerRow(&facts, true),
		ImageRow(&bourse.Image{Ref: bourse.ImageRef{Registry: "r", Repository: "a", Digest: "sha256:1"}, Bytes: 9, UsedAt: at}))
	claimed := m
	claimed.ID = "00000100000009"
	Plant(t, c, "w2", MachineRow(&claimed))
	if err := schema.Run(c, "UPDATE machine_rows SET placed = 0 WHERE key = ?", string(claimed.ID)); err != nil {
		t.Fatal(err)
	}
	facts.Worker, facts.Cordon = "w2", nil
	Plant(t, c, "w2", WorkerRow(&facts, false))
	Plant(t, c, "b1", AppRow(bourse.App{Name: "shop", ID: "1", Org: "me", Network: "n", CreatedAt: at}), CanceledRow("o9", "w1"), RemovedRow(&bourse.Member{ID: "w9", Role: bourse.RoleWorker, Region: "gru", Tag: 9}, at),
		CertifiedRow(&CertifiedMember{ID: "p1", Role: bourse.RoleProxy, Region: "gru", IssuedAt: at, ExpiresAt: at}))
	mark := seal.Marks{}.Next(3, at)
	Plant(t, c, "b1", SecretRows(&seal.Change{App: bourse.AppRef{Name: "shop", ID: "1"}, Mark: mark, Put: []seal.Secret{
		{Name: "PASSWORD", Digest: "d", Sealed: []byte{1}, Version: mark.Version, CreatedAt: at, UpdatedAt: at},
	}})...)
	Plant(t, c, "b1", TokenRow(&Token{
		ID: "t2", Name: "ci", Org: "me", Apps: []bourse.AppRef{{Name: "shop"}}, Machines: []bourse.MachineID{m.ID}, ReadOnly: true,
		MadeBy: "ann", MadeWith: "t1", CreatedAt: at, ExpiresAt: at, RevokedAt: at,
	}))
	Plant(t, c, "b1", WireGuardRow(&WireGuardPeer{
		ID: "l1", Name: "laptop", Org: "me", Network: "me/n", App: bourse.AppRef{Name: "shop", ID: "1"}, PublicKey: [32]byte{1}, Worker: "w1",
		MadeBy: "ann", MadeWith: "t1", CreatedAt: at, ExpiresAt: at, RemovedAt: at,
	}))
	Plant(t, c, "b1", PolicyRow(&Policy{Region: "gru", Text: []byte(`{"name":"packed"}`), SetBy: "ann", SetAt: at}))
	Plant(t, c, "b1", ReleaseRow(&release.Release{
		ID: release.NewID(), App: "shop", AppID: "1", Version: 1, Status: release.Complete, Strategy: "rolling", Description: "first", Image: "a",
		Definition: []byte(`{"app":"shop"}`), Metadata: []byte(`{"by":"ci"}`), User: "ann", CreatedAt: at, UpdatedAt: at,
	}))
	hear(t, c, "w1", false, at)
	hear(t, c, "w2", true, at)
	hear(t, c, "p1", false, at)
	for _, sql := range []string{
		"INSERT INTO streams (site, epoch, seq, hash, at) VALUES ('w1', 1, 9, 0, 1)",
		"INSERT INTO quarantine (site, epoch, seq, tbl, key, reason, since) VALUES ('w1', 1, 2, 'machine', 'x', 'bad', 1)",
	} {
		if err := schema.Run(c, sql); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestTablesAreFilledOrDescribedAsEmpty checks that each table or column that nothing writes is
// described as such, because users may query it.
func TestTablesAreFilledOrDescribedAsEmpty(t *testing.T) {
	c := plenty(t)
	var empty []string
	for _, name := range sqlViews(t, c) {
		text := ask(t, c, "SELECT sql FROM sqlite_schema WHERE name = ?", name)[0]
		about, ok := strings.CutPrefix(text, "CREATE VIEW "+name+" AS -- ")
		about, _, _ = strings.Cut(about, "\n")
		if !ok || !strings.HasSuffix(about, ".") || len(about) > 160 {
			t.Errorf("%s is described as %q, want a sentence or two", name, about)
		}
		if marked := strings.HasPrefix(about, "Not filled yet: "); marked != (ask(t, c, "SELECT count(*) FROM "+name)[0] == "0") {
			t.Errorf("%s is described as %q", name, about)
		} else if marked {
			empty = append(empty, name)
			continue
		}
		for _, column := range ask(t, c, "SELECT name FROM pragma_table_info(?)", name) {
			if !slices.ContainsFunc(ask(t, c, `SELECT "`+column+`" FROM `+name), func(v string) bool {
				return !slices.Contains([]string{"", "0", "0.0", "{}", "[]"}, v)
			}) {
				t.Errorf("nothing fills %s.%s", name, column)
			}
		}
	}
	if diff := cmp.Diff([]string(nil), empty); diff != "" {
		t.Errorf("tables that nothing fills (-want +got):\n%s", diff)
	}
}
