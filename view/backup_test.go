package view

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// A copy is made while the view is in use, and replaces the file when the file is lost. Other
// members have transactions that were published after the copy was made. The restored view must not
// reuse their numbers.
func TestBackup(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.publish(volume("before", "x"))
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := Backup(t.Context(), path, to); err != nil {
		t.Fatal(err)
	}
	m.publish(volume("after", "x"))
	last := m.Self()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), path, to); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("over an existing file: %v, want unavailable", err)
	}
	if err := os.Rename(to, path); err != nil { // the server's key stays next to path
		t.Fatal(err)
	}
	m = startMember(t, Config{Path: path})
	if now := m.Self(); now.Epoch <= last.Epoch {
		t.Errorf("epoch %d after the restore, %d before", now.Epoch, last.Epoch)
	}
	for _, key := range []string{"before", "after"} { // the worker publishes its rows again
		if _, ok := m.row(wire.TableVolumes, "w1", key); ok {
			t.Errorf("the row of volume %s was published in the lost epoch", key)
		}
	}
}

// A copy that is too old may contain rows that other members have deleted. It is replaced, unless no other copy exists.
func TestRevive(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	later := func() time.Time { return now.Add(maxFileAge + time.Hour) }
	for _, revived := range []bool{false, true} {
		path, to := tempFile(t), filepath.Join(t.TempDir(), "copy.db")
		m := startMember(t, Config{Path: path, Now: func() time.Time { return now }})
		m.publish(secret("web/KEY", "digest", 0))
		if err := Backup(t.Context(), path, to); err != nil {
			t.Fatal(err)
		}
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if revived {
			if err := AllowOldCopy(t.Context(), to, later()); err != nil {
				t.Fatal(err)
			}
		}
		m = startMember(t, Config{Path: to, Now: later})
		if found := len(m.dump()) > 0; found != revived {
			t.Errorf("revived %t: secret found: %t", revived, found)
		}
	}
}

func TestBackupOfNothing(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"missing": filepath.Join(dir, "none.db"), "not SQLite": filepath.Join(dir, "text.db")} {
		if name != "missing" {
			if err := os.WriteFile(path, []byte("this is not a database, but it is long enough"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Backup(t.Context(), path, filepath.Join(dir, "to.db")); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
}
