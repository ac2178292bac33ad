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
// FindExpired and Expired agree on when a row is removed. That must not be earlier if the laptop has been removed,
// because another member might still have the row without the removal.
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
	got, err := WireGuardPeers(now)(c)
	if d := cmp.Diff([]WireGuardPeer{want}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if n, err := StoredWireGuardPeers("acme")(c); n != 1 || err != nil {
		t.Errorf("the organization has %d, %v", n, err)
	}
	want.RemovedAt = now.Add(-30 * 24 * time.Hour)
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

// TestWireGuardPeersAreCutOff checks that laptops are omitted once they may no longer connect, also if a laptop's row
// arrives after the revocation of its token or the deletion of its app.
func TestWireGuardPeersAreCutOff(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]wire.Row{
		"removed":            WireGuardRow(&WireGuardPeer{ID: "l1", Org: "acme", ExpiresAt: now.Add(time.Hour), RemovedAt: now}),
		"expired":            WireGuardRow(&WireGuardPeer{ID: "l1", Org: "acme", ExpiresAt: now}),
		"its token revoked":  TokenRow(&Token{ID: "t1", RevokedAt: now}),
		"its app deleted":    AppRow(bourse.App{Name: "shop", ID: "1", DeletedAt: &now}),
		"its app recreated":  AppRow(bourse.App{Name: "shop", ID: "2"}),
		"another token":      TokenRow(&Token{ID: "t2", RevokedAt: now}),
		"its token is valid": TokenRow(&Token{ID: "t1"}),
		"another app":        AppRow(bourse.App{Name: "till", ID: "1", DeletedAt: &now}),
		"its app exists":     AppRow(bourse.App{Name: "shop", ID: "1"}),
	} {
		valid := map[string]bool{"another token": true, "its token is valid": true, "another app": true, "its app exists": true}
		c := SchemaConn(t)
		laptop := WireGuardRow(&WireGuardPeer{
			ID: "l1", Org: "acme", App: bourse.AppRef{Name: "shop", ID: "1"}, MadeWith: "t1", ExpiresAt: now.Add(time.Hour),
		})
		rows := []wire.Row{row, laptop}
		if row.Table == wire.TableWireGuard {
			rows = []wire.Row{laptop, row}
		}
		Plant(t, c, "b1", rows...)
		list, err := WireGuardPeers(now)(c)
		if err != nil || (len(list) == 1) != valid[name] {
			t.Errorf("%s: got %+v, %v", name, list, err)
		}
		if n, err := StoredWireGuardPeers("acme")(c); n != 1 || err != nil {
			t.Errorf("%s: %d are stored, %v", name, n, err)
		}
	}
}
