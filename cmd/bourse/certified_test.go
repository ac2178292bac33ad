package main

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestCertifiedMembers checks which servers a broker records. If several brokers see the same
// servers, only one of them records them.
func TestCertifiedMembers(t *testing.T) {
	expires := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	cert := &x509.Certificate{NotBefore: expires.AddDate(0, 0, -7), NotAfter: expires}
	b1, b2 := bourse.Member{ID: "b1", Role: bourse.RoleBroker}, bourse.Member{ID: "b2", Role: bourse.RoleBroker}
	p1, p2 := bourse.Member{ID: "p1", Role: bourse.RoleProxy, Region: "gru"}, bourse.Member{ID: "p2", Role: bourse.RoleProxy}
	w1 := bourse.Member{ID: "a-worker", Role: bourse.RoleWorker}
	for name, c := range map[string]struct {
		self    bourse.Member
		members []bourse.Member
		want    []bourse.WorkerID
	}{
		"the first broker":                  {b1, []bourse.Member{w1, b1, b2, p1, p2}, []bourse.WorkerID{"b1", "b2", "p1"}},
		"the second broker":                 {b2, []bourse.Member{w1, b1, b2, p1, p2}, nil},
		"on one side of a partition":        {b1, []bourse.Member{b1, w1}, []bourse.WorkerID{"b1"}},
		"on the other side":                 {b2, []bourse.Member{b2, p1, p2}, []bourse.WorkerID{"b2", "p1"}},
		"alone, and not listed as a member": {b2, nil, []bourse.WorkerID{"b2"}},
	} {
		got := certifiedMembers(c.self, cert, c.members, func(m bourse.Member) *x509.Certificate {
			if m.ID == c.self.ID || m.ID == "p2" { // p2 has not proven its identity again after its removal
				return nil
			}
			return cert
		})
		var ids []bourse.WorkerID
		for _, m := range got {
			ids = append(ids, m.ID)
			if m.Role == "" || m.ID == "p1" && m.Region != "gru" || !m.ExpiresAt.Equal(expires) || !m.IssuedAt.Before(expires) {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: recorded %v, want %v", name, ids, c.want)
		}
	}
}
