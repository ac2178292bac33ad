package view

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/schema"
)

// certificates returns the time at which each broker's and proxy's certificate was issued.
func (r *member) certificates() map[bourse.WorkerID]time.Time {
	r.t.Helper()
	list, err := r.Certified(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[bourse.WorkerID]time.Time{}
	for _, m := range list {
		out[m.ID] = m.IssuedAt
	}
	return out
}

// exchange gives each of two members the other's shared rows.
func exchange(t *testing.T, a, b *member) {
	t.Helper()
	for _, pair := range [][2]*member{{a, b}, {b, a}} {
		var rows bytes.Buffer
		if err := pair[0].SharedSnapshot(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		if err := pair[1].RestoreShared(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificatesAfterAPartition checks that two brokers that recorded certificates and a removal on different sides
// of a partition agree once the partition has ended.
func TestCertificatesAfterAPartition(t *testing.T) {
	one, two := startMember(t, Config{Site: "b1"}), startMember(t, Config{Site: "b2"})
	now := time.Now().Truncate(time.Second).UTC()
	earlier, later := now.Add(-time.Minute), now.Add(-time.Second)
	one.publish(certified("p1", earlier), certified("p2", earlier), certified("p3", earlier))
	exchange(t, one, two)

	two.publish(certified("p1", later), certified("p2", later)) // they renew their certificates
	one.publish(inventory.RemovedRow(&bourse.Member{ID: "p2"}, now.Add(-30*time.Second)), inventory.RemovedRow(&bourse.Member{ID: "p3"}, now))
	one.publish(certified("p4", earlier))
	if d := cmp.Diff(map[bourse.WorkerID]time.Time{"p1": earlier, "p4": earlier}, one.certificates()); d != "" {
		t.Errorf("b1 during the partition (-want +got):\n%s", d)
	}
	exchange(t, one, two)
	for _, m := range []*member{one, two} {
		if d := cmp.Diff(map[bourse.WorkerID]time.Time{"p1": later, "p2": later, "p4": earlier}, m.certificates()); d != "" {
			t.Errorf("%s after the partition (-want +got):\n%s", m.config.Site, d)
		}
		m.sound()
	}
	// A broker that has not noticed the renewal yet changes nothing.
	if at := one.publish(certified("p1", earlier)); at.Seq != 0 {
		t.Errorf("an earlier certificate was written at %v", at)
	}
}

// heard returns the sites for which the file records when they were last reachable.
func (r *member) heard() (sites []string) {
	r.t.Helper()
	err := r.Read(r.t.Context(), func(c *sqlite.Conn) error {
		return schema.Query(c, "SELECT site FROM sites ORDER BY site", func(s *sqlite.Stmt) error {
			sites = append(sites, s.ColumnText(0))
			return nil
		})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return sites
}

// TestCertifiedServersStayHeard checks that the view records when a proxy was last reachable until the proxy's
// certificate has expired. For a server without a certificate, this record is removed after a day.
func TestCertifiedServersStayHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64 // advances the clock without running removeExpired thousands of times
		m := startMember(t, Config{Site: "b1", Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }})
		defer m.end()
		heard := time.Now().UTC()
		m.publish(certified("p1", heard))
		m.SetPresence("p1", false, heard)
		m.SetPresence("p2", false, heard)
		passed.Store(int64(streamRetention + time.Hour))
		time.Sleep(2 * expiryInterval)
		synctest.Wait()
		if list, err := m.Certified(t.Context()); err != nil || len(list) != 1 || !list[0].HeardAt.Equal(heard) {
			t.Errorf("after a day: %+v, %v, want p1, last reachable at %s", list, err, heard)
		}
		if got := m.heard(); !slices.Equal(got, []string{"b1", "p1"}) {
			t.Errorf("after a day, the view records when %v were last reachable, want only this server and p1, which has a certificate", got)
		}
		passed.Store(int64(retention + 2*time.Hour))
		time.Sleep(2 * expiryInterval)
		synctest.Wait()
		if got := m.dump(); len(got) != 0 {
			t.Errorf("after the certificate has expired: %v", got)
		}
	})
}
