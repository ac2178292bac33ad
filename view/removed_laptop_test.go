package view

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse/view/inventory"
)

// TestRemovedLaptopsStayRemoved checks that a laptop that was removed long ago does not return if a member has kept its
// earlier row, and that nothing remains once the laptop has expired.
func TestRemovedLaptopsStayRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64 // advances the clock without running removeExpired thousands of times
		now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		m := startMember(t, Config{Site: "b1", Now: now})
		defer m.end()
		p := inventory.WireGuardPeer{ID: "l1", Org: "acme", CreatedAt: now(), ExpiresAt: now().Add(300 * 24 * time.Hour)}
		m.publish(inventory.WireGuardRow(&p))
		var kept bytes.Buffer
		if err := m.SharedSnapshot(t.Context(), &kept); err != nil {
			t.Fatal(err)
		}
		p.RemovedAt = now()
		m.publish(inventory.WireGuardRow(&p))
		for _, day := range []int{1, 30, 299, 301, 310} {
			passed.Store(int64(day) * int64(24*time.Hour))
			time.Sleep(2 * expiryInterval)
			synctest.Wait()
			if err := m.RestoreShared(t.Context(), bytes.NewReader(kept.Bytes())); err != nil {
				t.Fatal(err)
			}
			if list, err := m.WireGuardPeers(t.Context(), now()); err != nil || len(list) != 0 {
				t.Errorf("after %d days: %+v, %v", day, list, err)
			}
		}
		if n, err := m.StoredWireGuardPeers(t.Context(), "acme"); n != 0 || err != nil {
			t.Errorf("after its expiry, %d are stored, %v", n, err)
		}
	})
}
