package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// setShare sets the recorded numbers of rows and bytes of a stream.
func (r *member) setShare(s wire.Stream, rows, bytes int64) {
	r.t.Helper()
	err := r.submit(r.t.Context(), true, func(b *batch) error {
		h := b.head(s)
		h.rows, h.bytes = rows, bytes
		b.heads[s] = h
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestShareOfASite checks that each site's share of the view is limited. Rows that exceed it are
// quarantined, the stream continues, and the site can delete rows to make space.
func TestShareOfASite(t *testing.T) {
	m := startMember(t, Config{})
	s := wire.Stream{Site: "w2", Epoch: 1}
	m.take(encoded(t, "w2", 1, 1, volume("a", "x"), volume("b", "x")))
	m.sound()
	held := m.state.heads[s]
	if held.rows != 2 || held.bytes == 0 {
		t.Fatalf("the site has %d rows with %d bytes", held.rows, held.bytes)
	}
	seq := uint64(1)
	say := func(rows ...wire.Row) (quarantined int) {
		t.Helper()
		seq++
		m.take(encoded(t, "w2", 1, seq, rows...))
		if m.Head(s) != seq {
			t.Fatalf("head %d, want %d", m.Head(s), seq)
		}
		return m.Health().Quarantine.Count
	}
	m.setShare(s, MaxSiteRows, held.bytes)
	if n := say(volume("c", "x"), volume("a", "y")); n != 1 {
		t.Errorf("%d rows in quarantine, want 1", n)
	}
	m.setShare(s, 2, MaxSiteBytes)
	if n := say(volume("a", "longer"), volume("b", "")); n != 2 {
		t.Errorf("%d rows in quarantine, want 2, with the one that grew", n)
	}
	if n := say(wire.Row{Table: wire.TableVolumes, Key: "b", Deleted: true}); n != 2 || len(m.dump()) != 1 {
		t.Errorf("%d rows in quarantine after a deletion, rows %v", n, m.dump())
	}
	if m.take(encoded(t, "w3", 1, 1, volume("c", "x"))); len(m.dump()) != 2 {
		t.Error("another site is affected")
	}
}

// TestEpochsOfASiteAreLimited checks that only a few of a site's epochs are retained.
func TestEpochsOfASiteAreLimited(t *testing.T) {
	m := startMember(t, Config{Path: tempFile(t)})
	for epoch := range uint64(20) {
		m.take(encoded(t, "w2", epoch+1, 1, volume("v", fmt.Sprint(epoch)), secret(fmt.Sprint("k", epoch), "d", wire.ClockAt(time.Now()))))
	}
	heads := m.Digest().Heads
	if len(heads) != maxEpochs || heads[0].Epoch != 17 || len(m.dump()) != 21 {
		t.Errorf("heads %v, rows %v", heads, m.dump())
	}
	for epoch := range uint64(16) { // transactions of old epochs that arrive late
		m.take(encoded(t, "w2", epoch+1, 1, volume("v", "old")), encoded(t, "w2", epoch+1, 2, volume("v", "old")))
	}
	if d := cmp.Diff(heads, m.Digest().Heads); d != "" || len(m.intake.tails) != 0 {
		t.Errorf("heads after late transactions, %d queued:\n%s", len(m.intake.tails), d)
	}
	m.sound()
}

// TestStreamsOfUnreachableSitesAreEvicted checks that streams of unreachable sites are removed
// to make space for new ones, starting with those that own no rows.
func TestStreamsOfUnreachableSitesAreEvicted(t *testing.T) {
	m := startMember(t, Config{})
	m.publish(volume("ours", "x"))
	m.take(encoded(t, "w2", 1, 1, volume("theirs", "x")), encoded(t, "w3", 1, 1))
	m.SetPresence("w3", true, time.Now())
	m.take(encoded(t, "w4", 1, 1))
	const part = 8192
	for from := range maxStreams / part {
		err := m.submit(t.Context(), true, func(b *batch) error {
			for n := range part {
				s := wire.Stream{Site: bourse.WorkerID(fmt.Sprint("made-up-", from*part+n)), Epoch: 1}
				if err := b.advance(wire.Stamp{Position: wire.Position{Stream: s, Seq: 1}, At: time.Now().UnixNano()}, &wire.Author{Stream: s, Birth: testKey.Birth}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	m.take(encoded(t, "w5", 1, 1, volume("new", "x")))
	for site, want := range map[bourse.WorkerID]uint64{"w2": 1, "w3": 1, "w4": 0, "w5": 1} {
		if got := m.Head(wire.Stream{Site: site, Epoch: 1}); got != want {
			t.Errorf("%s: head %d, want %d", site, got, want)
		}
	}
	if n := len(m.state.heads); n > maxStreams || m.Self().Seq != 1 || len(m.dump()) != 3 {
		t.Errorf("%d streams, own position %v, rows %v", n, m.Self(), m.dump())
	}
	m.sound()
}

// TestIdleSitesAreRemoved checks that a site that owns no rows and has been unreachable for a
// day is ignored in digests, whether or not a member has already removed it, and that the site
// may return.
func TestIdleSitesAreRemoved(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	a, b := startMember(t, Config{Path: tempFile(t), Now: clock}), startMember(t, Config{Site: "w9", Now: clock})
	story := [][]byte{
		encoded(t, "w2", 1, 1, volume("v", "x")), encoded(t, "w3", 1, 1, volume("v", "x")), encoded(t, "w4", 1, 1),
		encoded(t, "w2", 1, 2, wire.Row{Table: wire.TableVolumes, Key: "v", Deleted: true}, secret("k", "d", wire.ClockAt(now))),
	}
	for _, m := range []*member{a, b} {
		m.take(story...)
		for _, site := range []bourse.WorkerID{"w2", "w3", "x1"} {
			m.SetPresence(site, false, now)
		}
		m.SetPresence("w4", true, now)
		m.setShare(wire.Stream{Site: "w4", Epoch: 1}, 0, 0) // makes a commit, which also writes the presence
	}
	now = now.Add(streamRetention + time.Minute)
	forget := func(m *member) {
		t.Helper()
		if err := m.submit(t.Context(), true, func(b *batch) error { return b.removeExpiredStreams() }); err != nil {
			t.Fatal(err)
		}
		m.writer.dropPresence()
	}
	forget(a)
	if d := cmp.Diff(a.Digest(), b.Digest()); d != "" || len(a.Digest().Heads) != 1 {
		t.Errorf("%v (-member that has removed the site +member that has not):\n%s", a.Digest().Heads, d)
	}
	for site, want := range map[bourse.WorkerID]uint64{"w2": 0, "w3": 1, "w4": 1} {
		if got := a.Head(wire.Stream{Site: site, Epoch: 1}); got != want {
			t.Errorf("%s: head %d, want %d", site, got, want)
		}
	}
	if _, ok := a.sites.seen["x1"]; ok || len(a.dump()) != 2 {
		t.Errorf("sites %v, rows %v", a.sites.seen, a.dump())
	}
	a.sound()
	a.take(encoded(t, "w2", 1, 1), encoded(t, "w2", 1, 2), encoded(t, "w2", 1, 3, volume("again", "x")))
	if a.Head(wire.Stream{Site: "w2", Epoch: 1}) != 3 || len(a.dump()) != 3 {
		t.Errorf("after the site's return: head %d, rows %v", a.Head(wire.Stream{Site: "w2", Epoch: 1}), a.dump())
	}
	a.sound()
}

// TestAppOrganizationCannotChange checks that only an app's deletion changes its row, whoever
// signs a later version.
func TestAppOrganizationCannotChange(t *testing.T) {
	m := startMember(t, Config{})
	at := time.Now()
	shop := bourse.App{Name: "shop", ID: "x", Org: "acme", Network: "blue", CreatedAt: at}
	theft := shop
	theft.Org, theft.Network = "thief", "red"
	first, later := inventory.AppRow(shop), inventory.AppRow(theft)
	first.Clock, later.Clock = wire.ClockAt(at), wire.ClockAt(at.Add(time.Minute))
	delete(first.Columns, "deleted_at")
	delete(later.Columns, "deleted_at")
	for _, story := range [][][]byte{
		{encoded(t, "b1", 1, 1, first), encoded(t, "b2", 1, 1, later)},
		{encoded(t, "b2", 2, 1, later), encoded(t, "b1", 2, 1, first)},
	} {
		m.take(story...)
		if app, err := Query(t.Context(), m.View, inventory.App("shop")); err != nil || app == nil || app.Org != "acme" || app.Network != "blue" {
			t.Errorf("%+v, %v", app, err)
		}
	}
	m.publish(inventory.AppRow(theft))
	if app, err := Query(t.Context(), m.View, inventory.App("shop")); err != nil || app.Org != "acme" {
		t.Errorf("after this server's record: %+v", app)
	}
	gone := at.Add(time.Hour)
	shop.DeletedAt = &gone
	m.publish(inventory.AppRow(shop))
	if app, err := Query(t.Context(), m.View, inventory.App("shop")); err != nil || app.DeletedAt == nil {
		t.Errorf("after the app's deletion: %+v", app)
	}
}
