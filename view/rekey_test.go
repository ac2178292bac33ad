package view

import (
	"bytes"
	"crypto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// replaced is the Keys of a site whose certificate is replaced while the site runs.
type replaced struct {
	*wire.Key
	own atomic.Pointer[wire.Key]
}

func (r *replaced) Own() ([]byte, crypto.Signer) { return r.own.Load().Own() }

// TestASiteWithANewKeyIsAccepted checks that a site whose key is replaced while it runs starts a
// new epoch within a minute, and that both new members and those that knew the old key accept
// it. Later signatures with the old key must have no effect in either epoch.
func TestASiteWithANewKeyIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newTestKey(t, bourse.RoleWorker), newTestKey(t, bourse.RoleWorker)
		keys := &replaced{Key: before}
		keys.own.Store(before)
		site := startMember(t, Config{Site: "w2", Keys: keys, Role: bourse.RoleWorker})
		knows, late := startMember(t, Config{Site: "w3"}), startMember(t, Config{Site: "w4"})
		site.publish(volume("v", "shop"))
		old := site.Self()
		knows.take(site.told...)

		keys.own.Store(after)
		time.Sleep(expiryInterval) // virtual time
		synctest.Wait()
		if got := site.Self(); got.Epoch <= old.Epoch {
			t.Fatalf("with another key, the site is at %v, previously at %v", got, old)
		}
		site.publish(volume("v", "shop"), volume("w", "shop"))
		knows.take(site.told...)
		late.take(site.told[1:]...)

		now := site.Self()
		forge := func(k *wire.Key, birth []byte, after wire.Position) []byte {
			tx := &wire.Transaction{Position: wire.Position{Stream: after.Stream, Seq: after.Seq + 1}, At: time.Now().UnixNano(), Rows: []wire.Row{volume("v", "stolen")}}
			b, err := wire.Encode(tx, wire.SigningKey{Cluster: "test", Birth: birth, Key: k.Key})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		for _, m := range []*member{knows, late} {
			for name, b := range map[string][]byte{
				"in the old epoch":                     forge(before, before.Birth, old),
				"in the new epoch":                     forge(before, nil, now),
				"in the new epoch, with its birth":     forge(before, before.Birth, now),
				"in the new epoch, with the new birth": forge(before, after.Birth, now),
			} {
				_, _ = m.Apply(b) // the effects are checked below
				m.flush()
				if d := cmp.Diff(site.dump(), m.dump()); d != "" {
					t.Errorf("the old key, %s, at %s (-site +member):\n%s", name, m.config.Site, d)
				}
			}
			if m.ForgedCount() == 0 {
				t.Errorf("%s has not counted any forgery", m.config.Site)
			}
			m.sound()
		}
		if p := site.publish(volume("w", "other")); p.Stream != now.Stream {
			t.Errorf("the site is at %v, previously at %v", p, now)
		}
		knows.take(site.told...)
		if d := cmp.Diff(site.dump(), knows.dump()); d != "" {
			t.Errorf("after the forgeries (-site +member):\n%s", d)
		}
	})
}

// TestForgedRowsInASnapshotAreCounted checks that a snapshot's valid rows are applied, and that
// forged shared rows are counted and have no effect. A stream's owned rows are not signed
// individually; see replication.Replicator for the members from which it requests snapshots.
func TestForgedRowsInASnapshotAreCounted(t *testing.T) {
	broker := startMember(t, Config{Site: "b1"})
	broker.publish(inventory.AppRow(bourse.App{Name: "shop", ID: "x", Org: "acme", CreatedAt: time.Now()}), secret("shop/a", "true", 0))
	broker.publish(inventory.AppRow(bourse.App{Name: "blog", ID: "y", Org: "acme", CreatedAt: time.Now()}), secret("blog/a", "true", 0), volume("v", "shop"))
	stranger := newTestKey(t, bourse.RoleBroker)
	forge := func(row *wire.RowBody) {
		if row.Table == wire.TableApps && row.Key == "blog" {
			row.Columns["org"] = "thief"
			row.Sig = signRow(t, sealOf(stranger), row)
		}
	}
	without := func(prefixes ...string) []string {
		return slices.DeleteFunc(broker.dump(), func(row string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(row, p) })
		})
	}
	t.Run("of shared rows", func(t *testing.T) {
		m := startMember(t, Config{Site: "w1", Path: tempFile(t), Role: bourse.RoleWorker})
		in := rewritten(t, broker, func(_ *[]byte, row *wire.RowBody) { forge(row) })
		if err := m.RestoreShared(t.Context(), bytes.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(without(wire.TableApps+"/blog ", wire.TableVolumes+"/"), m.dump()); d != "" || m.ForgedCount() != 1 {
			t.Errorf("%d forged, want 1; rows (-want +got):\n%s", m.ForgedCount(), d)
		}
		m.sound()
	})
	t.Run("of a stream", func(t *testing.T) {
		m := startMember(t, Config{Site: "w1", Path: tempFile(t), Role: bourse.RoleWorker})
		in := rewrittenStream(t, broker, forge)
		if err := m.Restore(t.Context(), broker.Self().Stream, bytes.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(without(wire.TableApps+"/blog "), m.dump()); d != "" || m.ForgedCount() != 1 {
			t.Errorf("%d forged, want 1; rows (-want +got):\n%s", m.ForgedCount(), d)
		}
		m.sound()
	})
}

// rewrittenStream returns a member's snapshot of its own stream with modified rows.
func rewrittenStream(t *testing.T, from *member, change func(*wire.RowBody)) []byte {
	t.Helper()
	sp, err := wire.Receive(t.Context(), from.Path(), bytes.NewReader(snapshot(t, from, from.Self().Stream)), func(wire.SnapshotHead) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	f, err := wire.NewFrameWriter(&out, sp.Head)
	if err != nil {
		t.Fatal(err)
	}
	err = sp.Rows(func(_ []byte, w wire.RowBody, _ error) error {
		w.Site, w.Epoch = sp.Head.Site, sp.Head.Epoch
		change(&w)
		w.Site, w.Epoch = "", 0
		return f.Row(w)
	})
	if err := errorsOf(err, f.Close(), sp.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
