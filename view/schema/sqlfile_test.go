package schema_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

func opened(t *testing.T, path string) *schema.File {
	t.Helper()
	f, err := schema.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // the test may have closed it already
	for _, p := range schema.Pragmas {
		if err := schema.Run(f.Conn, p); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestCreate checks that Create creates the tables in a new file, leaves a file with the same
// schema unchanged, and reports a file with another schema as unusable.
func TestCreate(t *testing.T) {
	f := opened(t, filepath.Join(t.TempDir(), "f.db"))
	for range 2 {
		if err := schema.Create(f.Conn); err != nil {
			t.Fatal(err)
		}
		if err := schema.Run(f.Conn, "INSERT OR REPLACE INTO sites (site, heard_at) VALUES ('w1', 1)"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := count(f.Conn); n != 1 || err != nil {
		t.Errorf("%d rows: %v", n, err)
	}
	if err := schema.Run(f.Conn, "PRAGMA user_version = 2"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Create(f.Conn); !isUnusable(err) {
		t.Errorf("a file of another schema: %v", err)
	}
}

func isUnusable(err error) bool {
	_, ok := errors.AsType[*schema.UnusableError](err)
	return ok
}

// TestFailedCreateChangesNothing checks that Create creates all tables in one transaction.
func TestFailedCreateChangesNothing(t *testing.T) {
	f := opened(t, filepath.Join(t.TempDir(), "f.db"))
	if err := schema.Run(f.Conn, "CREATE TABLE token_rows (n)"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Create(f.Conn); err == nil {
		t.Fatal("Create did not fail")
	}
	if err := schema.Run(f.Conn, "DROP TABLE token_rows"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Create(f.Conn); err != nil {
		t.Errorf("second call of Create: %v", err)
	}
}

func count(c *sqlite.Conn) (n int, err error) {
	err = schema.Query(c, "SELECT count(*) FROM sites", func(s *sqlite.Stmt) error {
		n = s.ColumnInt(0)
		return nil
	})
	return n, err
}

// TestReadersSeeOneStateOfTheNewestFile checks that a reader does not see rows that are written
// after it has started, and that new readers read the new file after it has been replaced.
func TestReadersSeeOneStateOfTheNewestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	var pool schema.Pool
	f := opened(t, path)
	if err := schema.Create(f.Conn); err != nil {
		t.Fatal(err)
	}
	pool.Reset(f)
	read := func(want int, during func()) {
		t.Helper()
		err := pool.Read(t.Context(), func(c *sqlite.Conn) error {
			for range 2 {
				if n, err := count(c); err != nil || n != want {
					t.Errorf("%d rows, want %d: %v", n, want, err)
				}
				during()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	insert := func() {
		n++
		if err := schema.Run(f.Conn, "INSERT INTO sites (site, heard_at) VALUES (?, 1)", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	read(0, insert)
	read(2, func() {})
	before := pool.Generation()
	if err := errors.Join(f.Close(), schema.MoveAside(path)); err != nil {
		t.Fatal(err)
	}
	f = opened(t, path)
	if err := schema.Create(f.Conn); err != nil {
		t.Fatal(err)
	}
	pool.Reset(f)
	read(0, func() {})
	if pool.Generation() == before {
		t.Error("the new file has the same generation as the old one")
	}
	if _, err := os.Stat(path + schema.DamagedSuffix); err != nil {
		t.Errorf("the old file: %v", err)
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Read(t.Context(), func(*sqlite.Conn) error { return nil }); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("read after Close: got %v, want unavailable", err)
	}
}

// TestReadersEndWithTheirContext checks that a context interrupts both a reader that waits for a
// connection and one that executes a statement.
func TestReadersEndWithTheirContext(t *testing.T) {
	var pool schema.Pool
	f := opened(t, "")
	pool.Reset(f)
	err := pool.Read(t.Context(), func(*sqlite.Conn) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return pool.Read(ctx, func(*sqlite.Conn) error { return nil })
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting reader: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = pool.Read(ctx, func(c *sqlite.Conn) error {
		const endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n FROM x"
		return schema.Query(c, endless, func(*sqlite.Stmt) error { cancel(); return nil })
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("running reader: %v", err)
	}
}

// TestLockExcludesOthers checks that a file remains locked until it is unlocked.
func TestLockExcludesOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.lock")
	unlock, err := schema.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Lock(path); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("second lock: got %v, want already_exists", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = schema.Lock(path); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
