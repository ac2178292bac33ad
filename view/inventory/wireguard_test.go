package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestWireGuardPeers checks that a laptop's row is read as it was written, that rows without a key are omitted, and that
// FindExpired and Expired agree on when a row is removed.
func TestWireGuardPeers(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := wire.ClockAt(now.Add(-7 * 24 * time.Hour))
	want := WireGuardPeer{
		ID: "l1", Name: "laptop", Org: "acme", Network: "acme/shop", App: bourse.AppRef{Name: "shop", ID: "1"}, PublicKey: [32]byte{1, 2, 3}, Worker: "w1",
		MadeBy: "ann", MadeWith: "t1", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}
	odd := WireGuardRow(&WireGuardPeer{ID: "l2", ExpiresAt: now})
	odd.Columns["public_key"] = "AAAA"
	Plant(t, c, "b1", WireGuardRow(&want), odd)
	got, err := WireGuardPeers()(c)
	if d := cmp.Diff([]WireGuardPeer{want}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for days, gone := range map[int]bool{1: false, -1: false, -8: true} {
		want.ExpiresAt = now.Add(time.Duration(days) * 24 * time.Hour)
		Plant(t, c, "b1", WireGuardRow(&want))
		list, err := all.FindExpired(c, before, 10)
		if err != nil || (len(list) == 1) != gone {
			t.Errorf("expired %d days from now: %d expired, %v", days, len(list), err)
		}
		v, _, err := all.Find(c, wire.TableWireGuard, true, "", "l1")
		if err != nil || schema.Expired(&v, before) != gone {
			t.Errorf("expired %d days from now: expired alone is %v, %v", days, !gone, err)
		}
	}
}
