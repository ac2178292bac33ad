package view

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

func TestReopenKeepsEverything(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.take(someStory(t)...)
	m.publish(volume("mine", "x"), secret("shop/b", "d", 0))
	want, digest, self := m.dump(), m.Digest(), m.Self()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, Config{Path: path})
	if d := cmp.Diff(want, m.dump()); d != "" {
		t.Errorf("rows (-before +after):\n%s", d)
	}
	if d := cmp.Diff(digest, m.Digest()); d != "" {
		t.Errorf("digest (-before +after):\n%s", d)
	}
	if m.Self() != self {
		t.Errorf("own stream is at %v, previously at %v", m.Self(), self)
	}
	if p := m.publish(volume("mine", "y")); p.Seq != self.Seq+1 {
		t.Errorf("the next transaction is at %v, after %v", p, self)
	}
	m.sound()
}

// TestUnusableFilesAreReplaced checks that Open moves an unusable file aside and starts a new
// epoch.
func TestUnusableFilesAreReplaced(t *testing.T) {
	exec := func(t *testing.T, path, sql string) {
		t.Helper()
		c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(schema.Run(c, sql), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, spoil := range map[string]func(t *testing.T, path string, cfg *Config){
		"another cluster": func(_ *testing.T, _ string, cfg *Config) { cfg.Cluster = "other" },
		"another site":    func(_ *testing.T, _ string, cfg *Config) { cfg.Site = "w7" },
		"a newer schema":  func(t *testing.T, path string, _ *Config) { exec(t, path, "PRAGMA user_version = 99") },
		"not used for six days": func(_ *testing.T, _ string, cfg *Config) {
			cfg.Now = func() time.Time { return time.Now().Add(maxFileAge + time.Hour) }
		},
		"not a database": func(t *testing.T, path string, _ *Config) { write(t, path, bytes.Repeat([]byte("garbage"), 4096)) },
		"truncated": func(t *testing.T, path string, _ *Config) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		},
		"another program's file": func(t *testing.T, path string, _ *Config) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			write(t, path, nil)
			exec(t, path, "CREATE TABLE machine_rows (x)")
		},
		"missing table": func(t *testing.T, path string, _ *Config) { exec(t, path, "DROP TABLE streams") },
	} {
		t.Run(name, func(t *testing.T) {
			path := tempFile(t)
			m := startMember(t, Config{Path: path})
			m.publish(volume("mine", "x"))
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
			cfg := Config{Path: path, Log: testLog(t)}
			spoil(t, path, &cfg)
			m = startMember(t, cfg)
			if got := m.dump(); len(got) != 0 {
				t.Errorf("rows of the old file: %v", got)
			}
			if !fileExists(path + schema.DamagedSuffix) {
				t.Error("the old file was not moved aside")
			}
			m.publish(volume("mine", "y"))
			m.sound()
		})
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLogOfADeletedFile checks that Open ignores the write-ahead log of a file that was deleted.
func TestLogOfADeletedFile(t *testing.T) {
	path, left := tempFile(t), tempFile(t)
	m := startMember(t, Config{Path: path})
	m.publish(volume("mine", "x"))
	copyFile(t, path, left)
	if err := os.Remove(left); err != nil {
		t.Fatal(err)
	}
	if !fileExists(left + "-wal") {
		t.Fatal("the log does not exist")
	}
	m = startMember(t, Config{Path: left})
	if got := m.dump(); len(got) != 0 {
		t.Errorf("rows of the deleted file: %v", got)
	}
	m.sound()
}

// replaced waits until the view has a new file.
func (r *member) replaced(lost <-chan struct{}) {
	r.t.Helper()
	select {
	case <-lost:
	case <-time.After(20 * time.Second):
		r.t.Fatal("the deletion of the file was not noticed")
	}
}

// TestFileLostWhileRunning damages the file of a running view. The view must create a new file with a new epoch,
// close RowsLost, and be able to apply all transactions again.
func TestFileLostWhileRunning(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, m *member){
		"deleted": func(t *testing.T, m *member) {
			if err := os.Remove(m.Path()); err != nil {
				t.Fatal(err)
			}
		},
		"deleted with its log": func(t *testing.T, m *member) {
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(m.Path() + end); err != nil {
					t.Fatal(err)
				}
			}
		},
		"replaced by another": func(t *testing.T, m *member) {
			write(t, m.Path()+".new", []byte("an old backup"))
			if err := os.Rename(m.Path()+".new", m.Path()); err != nil {
				t.Fatal(err)
			}
		},
		"overwritten": func(t *testing.T, m *member) {
			overwrite(t, m.Path())
			// Either a reader or the writer may notice first.
			if err := m.Read(t.Context(), func(c *sqlite.Conn) error { return m.tables.Each(c, func(wire.Version) error { return nil }) }); err == nil {
				t.Log("the reader did not notice the damage")
			}
			_, err := m.Publish(t.Context(), volume("mine", "z"))
			t.Log("publish:", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each case waits for the next check of the file
			m := startMember(t, Config{Path: tempFile(t), Log: testLog(t)})
			m.take(someStory(t)...)
			m.publish(volume("mine", "x"))
			m.SetPresence("w2", true, time.Now())
			before, lost, generation := m.Self(), m.RowsLost(), m.Generation()
			changes := m.Watch(wire.TableMachines)
			defer changes.Stop()
			lose(t, m)
			m.replaced(lost)
			if m.Self().Epoch <= before.Epoch || m.Generation() <= generation {
				t.Errorf("epoch %d, previously %d; generation %d, previously %d", m.Self().Epoch, before.Epoch, m.Generation(), generation)
			}
			<-changes.C // watchers are notified
			m.publish(volume("mine", "x"))
			m.take(someStory(t)...)
			m.sound()
			if got := m.dump(); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "volume/v9 ") }) {
				t.Errorf("after applying everything again: %v", got)
			}
			if alive := m.alive("w2"); alive != "1" {
				t.Errorf("site w2 in the new file: alive is %s, want 1", alive)
			}
		})
	}
}

// overwrite overwrites all of the file except its first page with garbage.
func overwrite(t *testing.T, path string) {
	t.Helper()
	// Merge the log into the file, so that it is read from the file.
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(schema.Run(c, "PRAGMA wal_checkpoint(TRUNCATE)"), c.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	garbage := bytes.Repeat([]byte{0xa5}, int(info.Size())-4096)
	if _, err := f.WriteAt(garbage, 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (r *member) alive(site bourse.WorkerID) string {
	r.t.Helper()
	for {
		got := "no row"
		err := r.Read(r.t.Context(), func(c *sqlite.Conn) error {
			return schema.Query(c, "SELECT coalesce(alive, 'unknown') FROM sites WHERE site = ?", func(s *sqlite.Stmt) error {
				got = s.ColumnText(0)
				return nil
			}, site)
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if got != "no row" {
			return got
		}
		w := r.Watch(TableSites)
		select {
		case <-w.C:
		case <-time.After(10 * time.Millisecond): // the notification may have come before Watch was called
		}
		w.Stop()
	}
}

func TestOneProcessHasTheFile(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	if _, err := Open(withTestDefaults(Config{Path: path})); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("a second view of the file: got %v, want %s", err, bourse.CodeAlreadyExists)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	startMember(t, Config{Path: path})
}

func TestReadEndsWithItsContext(t *testing.T) {
	for _, path := range []string{"", tempFile(t)} {
		m := startMember(t, Config{Path: path})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := m.Read(ctx, func(c *sqlite.Conn) error {
			return schema.Query(c, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", func(*sqlite.Stmt) error { return nil })
		})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("path %q: an endless query ended with %v", path, err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = m.Read(t.Context(), func(*sqlite.Conn) error { panic("a reader's") })
		}()
		m.publish(volume("v", "x"))
		m.sound()
	}
}

// TestHostCrash checks that a server starts a new epoch after its host has rebooted, because the
// last commits may be missing.
func TestHostCrash(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.publish(volume("mine", "x"), secret("shop/a", "d", 0))
	m.take(encoded(t, "w2", 1, 1, volume("theirs", "x")))
	before := m.Self()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(schema.Run(c, "UPDATE meta SET boot = 'before'"), c.Close()); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, Config{Path: path})
	if m.Self().Epoch <= before.Epoch {
		t.Errorf("epoch %d after %d", m.Self().Epoch, before.Epoch)
	}
	got := m.dump()
	if len(got) != 2 || !strings.HasPrefix(got[0], "secret/") || !strings.HasPrefix(got[1], "volume/theirs") {
		t.Errorf("want only the server's own owned rows removed: %v", got)
	}
	m.sound()
}
