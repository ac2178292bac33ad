package view

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

func TestWatchersAreNotifiedOfTheirTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Config{})
		defer m.end()
		synctest.Wait()
		volumes, services, sites, all := m.Watch(wire.TableVolumes), m.Watch(TableServices), m.Watch(TableSites), m.Watch()
		stopped := m.Watch()
		stopped.Stop()
		expect := func(what string, w *Watcher, want bool) {
			t.Helper()
			synctest.Wait()
			got := false
			select {
			case <-w.C:
				got = true
			default:
			}
			if got != want {
				t.Errorf("%s: notified %v, want %v", what, got, want)
			}
		}
		for i := range 3 { // all changes cause only one notification
			m.publish(volume("v", string(rune('a'+i))))
		}
		expect("volumes after volumes", volumes, true)
		expect("volumes again", volumes, false)
		expect("services after volumes", services, false)
		expect("all after volumes", all, true)
		expect("a stopped one", stopped, false)
		m.publish(volume("v", "c"))
		expect("volumes after no change", volumes, false)
		m.take(encoded(t, "w2", 1, 1, wire.Row{Table: wire.TableMachines, Key: "m"}))
		expect("services after a machine", services, true)
		expect("sites after a machine", sites, false)
		m.SetPresence("w2", true, time.Now())
		expect("sites after a presence update", sites, true)
		m.SetPresence("w2", true, time.Now().Add(time.Second))
		expect("sites after an unchanged presence", sites, false)
		m.SetPresence("w2", false, time.Now())
		expect("sites after silence", sites, true)
	})
}

func TestPresenceIsUnknownAfterStartup(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.SetPresence("w2", true, time.Now())
	m.SetPresence("w3", false, time.Now().Add(-time.Hour))
	if a, b, self := m.alive("w2"), m.alive("w3"), m.alive("w1"); a != "1" || b != "0" || self != "1" {
		t.Errorf("alive: w2 %s, w3 %s, this server %s", a, b, self)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, Config{Path: path})
	if a, b := m.alive("w2"), m.alive("w3"); a != "unknown" || b != "unknown" {
		t.Errorf("after a start: w2 %s, w3 %s", a, b)
	}
}

// TestTombstonesExpireAfterAWeek checks that tombstones and canceled orders are removed after a
// week, and that other members cannot restore them.
func TestTombstonesExpireAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64 // advances the clock without running removeExpired thousands of times
		now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		m := startMember(t, Config{Now: now})
		defer m.end()
		m.publish(secret("k", "x", 0), wire.Row{Table: wire.TableCanceled, Key: "o/w", Columns: map[string]wire.Value{"worker": "w"}})
		m.publish(wire.Row{Table: wire.TableSecrets, Key: "k", Deleted: true})
		m.take(encoded(t, "w2", 1, 1, wire.Row{Table: wire.TableReleases, Key: "k", Deleted: true, Clock: wire.ClockAt(time.Now())}))
		old := m.told
		passed.Store(int64(retention - time.Hour))
		time.Sleep(2 * expiryInterval)
		synctest.Wait()
		if got := m.dump(); len(got) != 3 {
			t.Errorf("too early: %v", got)
		}
		passed.Store(int64(retention))
		time.Sleep(2 * expiryInterval)
		synctest.Wait()
		if got := m.dump(); len(got) != 0 || m.Digest().Shared != 0 {
			t.Errorf("after a week: %v", got)
		}
		m.sound()
		late := startMember(t, Config{Site: "w3", Now: now})
		defer late.end()
		late.take(old...)
		if got := late.dump(); len(got) != 0 {
			t.Errorf("a new member has retained %v", got)
		}
	})
}

func TestHealthDescribesEachStream(t *testing.T) {
	now := time.Unix(0, testStart).Add(time.Minute)
	m := startMember(t, Config{Path: tempFile(t), Now: func() time.Time { return now }})
	m.take(encoded(t, "w2", 1, 1, volume("v", "x")), encoded(t, "w2", 1, 3, volume("v", "x")))
	m.publish(volume("v", "x"), secret("k", "x", 0))
	h := m.Health()
	if h.Site != "w1" || h.Self != m.Self() || h.Self.Seq != 1 || h.FileBytes == 0 || len(h.Streams) != 2 || h.Queue.Waiting != 1 {
		t.Errorf("health %+v", h)
	}
	theirs := h.Streams[1]
	if theirs.Site != "w2" || theirs.Seq != 1 || theirs.Gaps != 1 || theirs.Lag.Round(time.Second) != time.Minute {
		t.Errorf("stream of w2: %+v", theirs)
	}
	var tables []string
	for _, table := range h.Tables {
		tables = append(tables, table.Table)
	}
	if got := strings.Join(tables, " "); got != "secret volume" || h.Tables[1].Rows != 2 || h.Tables[1].Checksum == 0 {
		t.Errorf("tables: %+v", h.Tables)
	}
}

// TestReadersDoNotWaitForTheWriter checks that a reader sees one state until it ends, while the
// writer continues.
func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	m := startMember(t, Config{Path: tempFile(t)})
	m.publish(volume("v1", "x"))
	size := func(c *sqlite.Conn) (n int) {
		if err := schema.Query(c, "SELECT count(*) FROM volume_rows", func(s *sqlite.Stmt) error { n = s.ColumnInt(0); return nil }); err != nil {
			t.Error(err)
		}
		return n
	}
	err := m.Read(t.Context(), func(c *sqlite.Conn) error {
		before := size(c)
		m.publish(volume("v2", "x")) // would block if it had to wait for the reader
		if after := size(c); before != 1 || after != 1 {
			t.Errorf("one reader saw %d rows, then %d", before, after)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := count(t.Context(), m.View); err != nil || n != 2 {
		t.Errorf("after the reader has ended: got %d rows (%v), want 2", n, err)
	}
}
