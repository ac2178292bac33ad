package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// ask returns the rows of a statement in the format of the sqlite3 shell.
func ask(t testing.TB, c *sqlite.Conn, sql string, args ...any) []string {
	t.Helper()
	var out []string
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		var row []string
		for i := range s.ColumnCount() {
			row = append(row, s.ColumnText(i))
		}
		out = append(out, strings.Join(row, "|"))
		return nil
	}, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func sqlViews(t testing.TB, c *sqlite.Conn) []string {
	t.Helper()
	return ask(t, c, "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name")
}

var peopleStart = time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)

// people returns a database with a few rows of each kind.
func people(t testing.TB) *sqlite.Conn {
	c := SchemaConn(t)
	at := peopleStart
	m := bourse.Machine{
		ID: "00000100000001", App: "shop", Name: "web", Region: "gru", State: bourse.StateStarted, Instance: "i1", Order: "o1", CreatedAt: at, UpdatedAt: at.Add(time.Hour),
		Boot:  bourse.Boot{Number: 2, PID: 77, Port: 9000, Exit: &bourse.Exit{Code: 3, At: at}},
		Lease: &bourse.Lease{Owner: "ci", ExpiresAt: at},
		Config: bourse.Config{
			Image: "host", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, Metadata: map[string]string{"role": "web"},
		},
		LastEvents: []bourse.Event{
			{ID: "e2", Type: bourse.EventExit, From: bourse.StateStarted, State: bourse.StateStopped, Source: bourse.SourceWorker, At: at.Add(time.Second), Exit: &bourse.ExitEvent{Exit: bourse.Exit{Code: 3, OOMKilled: true}}},
			{ID: "e1", Type: bourse.EventStart, From: bourse.StateStarting, State: bourse.StateStarted, Source: bourse.SourceUser, At: at},
		},
	}
	m.Config.Services = []byte(`[{"internal_port":8080,"protocol":"udp"},7,{}]`)
	facts := bourse.Facts{Worker: "w1", Region: "gru", Tag: 1, Version: "0.2", Accounts: []bourse.Account{
		{Resource: "cpu", Total: 16000, Used: 0}, {Resource: "memory", Total: 8192, Used: 4096},
	}}
	Plant(t, c, "w1", MachineRow(&m), WorkerRow(&facts, false),
		wire.Row{Table: wire.TableVolumes, Key: "v1", Columns: map[string]wire.Value{"app": "shop", "size_gb": int64(3)}},
		wire.Row{Table: wire.TableImages, Key: "sha256:1", Columns: map[string]wire.Value{"name": "img", "used_at": at.UnixNano()}})
	facts.Worker = "w2"
	checked := bourse.Machine{ID: "00000200000009", App: "lab", Region: "mad", State: bourse.StateStarted, UpdatedAt: at, Checks: &bourse.CheckResults{
		Results: []bourse.CheckStatus{{Name: "http", Status: bourse.CheckPassing, Output: "GET /: 200 OK", UpdatedAt: at}},
	}}
	checked.Config.Checks = []byte(`{"http":{"type":"http","port":8080},"tcp":{"port":22}}`)
	Plant(t, c, "w2", WorkerRow(&facts, true), AMachine(2, "blog", "mad", 0))
	facts.Worker, facts.Region = "w3", "mad"
	Plant(t, c, "w3", WorkerRow(&facts, false), MachineRow(&checked))
	deleted := at
	Plant(t, c, "b1", AppRow(bourse.App{Name: "shop", ID: "1", Org: "me", CreatedAt: at}), AppRow(bourse.App{Name: "old", DeletedAt: &deleted}),
		PolicyRow(&Policy{Region: "gru", Shadow: true, Text: []byte(`{"name":"packed"}`), SetBy: "ann", SetAt: at}),
		CanceledRow("o9", "w1"), CertifiedRow(&CertifiedMember{ID: "p1", Role: bourse.RoleProxy, Region: "gru", IssuedAt: at, ExpiresAt: at.Add(time.Hour)}), RemovedRow(&bourse.Member{ID: "w9", Region: "gru", Tag: 9}, at),
		WireGuardRow(&WireGuardPeer{ID: "l1", Name: "laptop", Org: "me", Network: "me/", Worker: "w1", CreatedAt: at, ExpiresAt: at.Add(time.Hour)}),
		TokenRow(&Token{ID: "t1", Name: "ci", Org: "me", Apps: []bourse.AppRef{{Name: "shop", ID: "1"}}, CreatedAt: at}),
		wire.Row{Table: wire.TableSecrets, Key: "shop/KEY", Columns: map[string]wire.Value{"app": "shop", "name": "KEY", "sealed": []byte("x")}},
		wire.Row{Table: wire.TableReleases, Key: "shop/1", Columns: map[string]wire.Value{"app": "shop", "version": int64(1)}})
	hear(t, c, "w1", true, at)
	hear(t, c, "w2", true, at)
	hear(t, c, "w3", false, at)
	Plant(t, c, "w9", AMachine(9, "shop", "gru", 0))
	for _, sql := range []string{
		"UPDATE machine_rows SET placed = 0 WHERE site = 'w9'",
		"INSERT INTO streams (site, epoch, seq, hash, at) VALUES ('w1', 1, 9, 0, 1), ('w1', 2, 5, 0, 1), ('w4', 1, 1, 0, 1)",
		"INSERT INTO quarantine (site, epoch, seq, tbl, key, reason, since) VALUES ('w1', 1, 2, 'machine', 'x', 'bad', 1)",
	} {
		if err := schema.Run(c, sql); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestEveryViewCanBeRead checks that every SQL view can be read completely and is not empty, and
// that secrets' values cannot be read.
func TestEveryViewCanBeRead(t *testing.T) {
	c := people(t)
	views := sqlViews(t, c)
	if len(views) < 10 {
		t.Fatalf("only %v", views)
	}
	for _, name := range views {
		if rows := ask(t, c, "SELECT * FROM "+name); len(rows) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, column := range ask(t, c, "SELECT name FROM pragma_table_info(?)", name) {
			if strings.ContainsAny(column, " :\"") {
				t.Errorf("column %q of %s has no name", column, name)
			}
			if name == "secrets" && column == "sealed" {
				t.Error("the values of secrets are shown")
			}
		}
	}
}

func TestViewContents(t *testing.T) {
	c := people(t)
	for _, tt := range []struct {
		sql  string
		want []string
	}{
		{"SELECT id, host_status, heard_at FROM workers", []string{"w1|ok|", "w2|ok|", "w3|unreachable|2026-03-01T12:00:00.250Z"}},
		{"SELECT id, machines, cpus, cpus_free, memory_mb, memory_mb_free, tag FROM workers WHERE id = 'w1'", []string{"w1|1|16.0|16.0|8192|4096|000001"}},
		{"SELECT worker, resource, total, used, free FROM capacity WHERE resource = 'cpu' AND host_status = 'ok'", []string{"w1|cpu|16000|0|16000", "w2|cpu|16000|0|16000"}},
		{"SELECT * FROM regions", []string{"gru|2|2|1|0|2|16.0|4096", "mad|1|0|0|0|1|0.0|0"}},
		{"SELECT id, app, name, worker, state, host_status, image, cpu_kind, cpus, memory_mb FROM machines WHERE app = 'shop'", []string{"00000100000001|shop|web|w1|started|ok|host|shared|2|512"}},
		{"SELECT pid, port, starts, exit_code, lease_owner, created_at, updated_at FROM machines WHERE app = 'shop'", []string{"77|9000|2|3|ci|2026-03-01T12:00:00.250Z|2026-03-01T13:00:00.250Z"}},
		{"SELECT id FROM machines WHERE metadata ->> '$.role' = 'web'", []string{"00000100000001"}},
		{"SELECT created_at, starts, metadata FROM machines WHERE app = 'blog'", []string{"|0|{}"}},
		{"SELECT at, machine, type, was, state, exit_code, oom_killed FROM events WHERE app = 'shop' ORDER BY at", []string{
			"2026-03-01T12:00:00.250Z|00000100000001|start|starting|started||0",
			"2026-03-01T12:00:01.250Z|00000100000001|exit|started|stopped|3|1",
		}},
		{"SELECT app, region, state, protocol, internal_port, port, host_status FROM services", []string{"shop|gru|started|udp|8080|9000|ok", "shop|gru|started|tcp|0|9000|ok"}},
		{"SELECT machine, app, name, worker, status, output, updated_at, host_status FROM checks", []string{
			"00000200000009|lab|http|w3|passing|GET /: 200 OK|2026-03-01T12:00:00.250Z|unreachable",
			"00000200000009|lab|tcp|w3|warning|waiting for the first result|2026-03-01T12:00:00.250Z|unreachable",
		}},
		{"SELECT name, org, machines FROM apps", []string{"shop|me|1"}},
		{"SELECT * FROM certified_members", []string{"p1|proxy|gru|unknown||2026-03-01T12:00:00.250Z|2026-03-01T13:00:00.250Z"}},
		{"SELECT order_id, worker FROM canceled_orders", []string{"o9|w1"}},
		{"SELECT id, host_status, epoch, seq FROM members", []string{"w1|ok|2|5", "w2|ok||", "w3|unreachable||", "w4|unknown|1|1"}},
		{"SELECT site, in_table, key, reason FROM quarantined", []string{"w1|machine|x|bad"}},
		{"SELECT app, region, count(*) FROM machines WHERE host_status = 'ok' GROUP BY app, region", []string{"blog|mad|1", "shop|gru|1"}},
	} {
		if diff := cmp.Diff(tt.want, ask(t, c, tt.sql)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.sql, diff)
		}
	}
}

// TestStrangeJSONFailsNoView checks that a row that contains valid JSON of an unexpected shape
// is accepted, and does not make statements about other rows fail.
func TestStrangeJSONFailsNoView(t *testing.T) {
	columns := map[string][]string{
		wire.TableMachines: {"config", "takes", "boot", "lease", "events"},
		wire.TableWorkers:  {"labels", "capacity", "free", "drivers", "mesh"},
	}
	c := people(t)
	all := schemaTables(t, c)
	for _, text := range []string{
		"null", "5", `"x"`, `["x"]`, `[["x"]]`, `{"services":["x",[1],{"protocol":["x"],"internal_port":{}}]}`, `{"services":{"a":{}}}`, `{"a":"x"}`, `{"x":{}}`,
		`[{"resource":"memory","total":9223372036854775807,"used":-9223372036854775808,"amount":9223372036854775807}]`,
		`[{"resource":"cpu","total":"x","amount":{}}]`, `[{"at":"x","exit":[]}]`, `[{"at":1e999}]`, `{"\u0000":"\ud800"}`,
	} {
		for table, names := range columns {
			for i, name := range names {
				for n := range 2 {
					site := bourse.WorkerID(fmt.Sprint("evil", i, n))
					row := WorkerRow(&bourse.Facts{Worker: site, Region: "gru"}, false)
					if table == wire.TableMachines {
						row = AMachine(100+i, "shop", "gru", 0)
					}
					row.Columns[name] = text
					if _, err := all.Check(site, row); err != nil {
						t.Fatalf("%s is rejected: %v", text, err)
					}
					Plant(t, c, site, row)
					hear(t, c, site, true, peopleStart)
				}
			}
		}
		for _, name := range sqlViews(t, c) {
			ask(t, c, "SELECT * FROM "+name)
		}
		for _, sql := range []string{
			"SELECT * FROM capacity WHERE resource = 'cpu' AND free > 0", "SELECT * FROM events WHERE type = 'exit' AND at > '2026'",
			"SELECT * FROM machines WHERE image = 'host' AND cpus > 1", "SELECT * FROM workers WHERE cpus_free > 1",
		} {
			ask(t, c, sql)
		}
	}
}
