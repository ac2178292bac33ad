package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestCertified checks that a broker or proxy is known until an operator removes it, and again
// after it has received another certificate.
func TestCertified(t *testing.T) {
	c := SchemaConn(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p1 := CertifiedMember{ID: "p1", Role: bourse.RoleProxy, Region: "gru", IssuedAt: at, ExpiresAt: at.Add(time.Hour)}
	b1 := CertifiedMember{ID: "b1", Role: bourse.RoleBroker, IssuedAt: at, ExpiresAt: at.Add(time.Hour)}
	heard := p1
	heard.HeardAt = at.Add(time.Minute)
	renewed := heard
	renewed.IssuedAt = at.Add(3 * time.Second)
	check := func(when string, want ...CertifiedMember) {
		t.Helper()
		got, err := Certified()(c)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
		var shown []string
		for _, m := range got {
			shown = append(shown, string(m.ID))
		}
		if d := cmp.Diff(shown, ask(t, c, "SELECT id FROM certified_members ORDER BY id")); d != "" {
			t.Errorf("%s, in SQL (-want +got):\n%s", when, d)
		}
	}
	Plant(t, c, "b1", CertifiedRow(&p1), CertifiedRow(&b1))
	check("at first", b1, p1)
	hear(t, c, "p1", false, heard.HeardAt)
	check("after it was heard from", b1, heard)
	Plant(t, c, "b1", RemovedRow(&bourse.Member{ID: "p1"}, at.Add(-time.Millisecond)))
	check("removed before the certificate was issued", b1, heard)
	Plant(t, c, "b1", RemovedRow(&bourse.Member{ID: "p1"}, at.Add(2*time.Second)))
	check("removed", b1)
	Plant(t, c, "b1", CertifiedRow(&renewed))
	check("joined again", b1, renewed)
}

// TestCertifiedExpire checks that the row of a server is removed once its certificate has been
// invalid for the retention of tombstones, and that FindExpired and Expired agree on this.
func TestCertifiedExpire(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := wire.ClockAt(now.Add(-7 * 24 * time.Hour))
	for days, gone := range map[int]bool{1: false, -1: false, -8: true} {
		c := SchemaConn(t)
		all := schemaTables(t, c)
		expires := now.Add(time.Duration(days) * 24 * time.Hour)
		Plant(t, c, "b1", CertifiedRow(&CertifiedMember{ID: "p1", Role: bourse.RoleProxy, IssuedAt: expires.Add(-time.Hour), ExpiresAt: expires}))
		list, err := all.FindExpired(c, before, 10)
		if err != nil || (len(list) == 1) != gone {
			t.Errorf("expired %d days from now: %d expired, %v", days, len(list), err)
		}
		v, _, err := all.Find(c, wire.TableCertified, true, "", "p1")
		if err != nil || schema.Expired(&v, before) != gone {
			t.Errorf("expired %d days from now: expired alone is %v, %v", days, !gone, err)
		}
	}
}
