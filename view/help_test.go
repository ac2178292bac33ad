package view

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// member is an open view with a running writer, until stop is called or the test ends.
type member struct {
	*View
	t       testing.TB
	cancel  context.CancelFunc
	ended   chan error
	stopped bool
	told    [][]byte // its own transactions, in order; read only while nothing is being published
}

// startMember opens a view and runs its writer.
func startMember(t testing.TB, cfg Config) *member {
	t.Helper()
	v, err := Open(withTestDefaults(cfg))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return startView(t, v)
}

func withTestDefaults(cfg Config) Config {
	if cfg.Site == "" {
		cfg.Site = "w1"
	}
	if cfg.Cluster == "" {
		cfg.Cluster = "test"
	}
	return cfg
}

func startView(t testing.TB, v *View) *member {
	ctx, cancel := context.WithCancel(context.Background())
	r := &member{View: v, t: t, cancel: cancel, ended: make(chan error, 1)}
	v.OnPublish(func(_ *wire.Transaction, encoded []byte) { r.told = append(r.told, encoded) })
	go func() { r.ended <- v.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

// end is like stop, but ignores the error.
func (r *member) end() { _ = r.stop() }

// stop stops the writer, closes the file and returns Run's error.
func (r *member) stop() error {
	r.t.Helper()
	if r.stopped {
		return nil
	}
	r.stopped = true
	r.cancel()
	err := <-r.ended
	if err := r.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	return err
}

func (r *member) publish(rows ...wire.Row) wire.Position {
	r.t.Helper()
	p, err := r.Publish(r.t.Context(), rows...)
	if err != nil {
		r.t.Fatalf("publish: %v", err)
	}
	return p
}

// take applies transactions and waits until they are in the file.
func (r *member) take(encoded ...[]byte) {
	r.t.Helper()
	for _, e := range encoded {
		if _, err := r.Apply(e); err != nil {
			r.t.Fatalf("apply: %v", err)
		}
	}
	r.flush()
}

func (r *member) flush() {
	r.t.Helper()
	if err := r.Flush(r.t.Context()); err != nil {
		r.t.Fatalf("flush: %v", err)
	}
}

// sound checks that the file is intact according to SQLite, and that its contents match the
// in-memory state.
func (r *member) sound() {
	r.t.Helper()
	if err := r.verify(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

// dump returns all current rows as text, in order.
func (r *member) dump() []string {
	r.t.Helper()
	var out []string
	err := r.Read(r.t.Context(), func(c *sqlite.Conn) error {
		add := func(rec wire.Version) error {
			out = append(out, fmt.Sprintf("%s/%s by %s: %v clock %d deleted %v", rec.Table, rec.Key, rec.Site, rec.Columns, rec.Clock, rec.Deleted))
			return nil
		}
		return r.tables.Each(c, add)
	})
	if err != nil {
		r.t.Fatalf("dump: %v", err)
	}
	slices.Sort(out)
	return out
}

// encoded returns an encoded transaction of another site.
func encoded(t testing.TB, site bourse.WorkerID, epoch, seq uint64, rows ...wire.Row) []byte {
	t.Helper()
	tx := &wire.Transaction{Position: wire.Position{Stream: wire.Stream{Site: site, Epoch: epoch}, Seq: seq}, At: testStart + int64(seq), Rows: rows}
	b, err := wire.Encode(tx, testSeal())
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return b
}

// testStart is the time of the tests' transactions. It is recent enough that their streams are not removed.
var testStart = time.Now().UnixNano()

// testKey signs for all sites that tests invent.
var testKey = wire.KeyOf(bourse.RoleBroker, ed25519.NewKeyFromSeed([]byte("the key of sites that tests make")))

func testSeal() wire.SigningKey {
	return wire.SigningKey{Cluster: "test", Birth: testKey.Birth, Key: testKey.Key}
}

func volume(key, app string) wire.Row {
	return wire.Row{Table: wire.TableVolumes, Key: key, Columns: map[string]wire.Value{"app": app, "size_gb": int64(len(key))}}
}

func secret(key, digest string, clock wire.Clock) wire.Row {
	return wire.Row{Table: wire.TableSecrets, Key: key, Columns: map[string]wire.Value{"digest": digest, "sealed": []byte{1, 2, 0}}, Clock: clock}
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "view.db") }

// row returns one row of an owned table.
func (r *member) row(table string, site bourse.WorkerID, key string) (rec wire.Version, ok bool) {
	r.t.Helper()
	err := r.Read(r.t.Context(), func(c *sqlite.Conn) (err error) {
		rec, ok, err = r.tables.Find(c, table, false, site, key)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return rec, ok
}
