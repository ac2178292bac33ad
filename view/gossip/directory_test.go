package gossip_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// startNodes runs nodes until the test ends.
func startNodes(t testing.TB, network gossiptest.Network, n int) []*gossiptest.Node {
	t.Helper()
	group, err := gossiptest.StartGroup(t.Context(), network, n, gossiptest.NodeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gossiptest.StopAll(group); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return group
}

// publishFacts publishes the facts of a worker: its free memory and whether it is leaving.
func publishFacts(t testing.TB, n *gossiptest.Node, free int64, leaving bool) {
	t.Helper()
	_, err := n.View.Publish(t.Context(), inventory.WorkerRow(&bourse.Facts{
		Worker: n.ID, Tag: bourse.WorkerTag(n.Number), Region: "gru", Accounts: []bourse.Account{{Resource: "memory", Total: 1024, Used: 1024 - free}},
	}, leaving))
	if err != nil {
		t.Fatalf("%s: publish: %v", n.ID, err)
	}
}

// TestDirectory checks that the membership determines the workers and the view their free
// capacity. With an empty view, a directory lists all workers, with unknown free capacity.
func TestDirectory(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startNodes(t, gossiptest.NewMemory(1), 3)
		d := gossip.NewDirectory(group[0].View, group[0].Members)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		if d := cmp.Diff(map[bourse.WorkerID]int64{"w1": 0, "w2": 0, "w3": 0}, memory(d.Candidates("gru"))); d != "" {
			t.Errorf("with an empty view (-want +got):\n%s", d)
		}
		for i, n := range group {
			publishFacts(t, n, int64(i+1)*256, i == 2)
		}
		time.Sleep(time.Second) // virtual time
		if d := cmp.Diff(map[bourse.WorkerID]int64{"w1": 256, "w2": 512}, memory(d.Candidates("gru"))); d != "" {
			t.Errorf("candidates (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[bourse.WorkerID]int64{"w1": 256, "w2": 512, "w3": 768}, memory(d.Workers())); d != "" {
			t.Errorf("workers (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]bourse.Region{"gru"}, d.Regions()); d != "" {
			t.Errorf("regions (-want +got):\n%s", d)
		}
		if w, ok := d.ByTag(2); !ok || w.ID != "w2" || w.Free.Of("memory") != 512 {
			t.Errorf("w2 by its tag: %+v", w)
		}
		clear(d.Candidates("gru")) // the caller owns the slice

		publishFacts(t, group[1], 64, false)
		group[0].Members.SetLeaving(true)
		time.Sleep(time.Second) // virtual time
		if d := cmp.Diff(map[bourse.WorkerID]int64{"w2": 64}, memory(d.Candidates("gru"))); d != "" {
			t.Errorf("after changes (-want +got):\n%s", d)
		}
		_ = group[1].Kill() // ignore the errors of a node that loses its network
		time.Sleep(10 * time.Second)
		if _, ok := d.ByTag(2); ok || len(d.Candidates("gru")) != 0 {
			t.Errorf("the lost worker is still a candidate: %v", d.Candidates("gru"))
		}
	})
}

// TestStoppedWorker stops a worker right after it has announced that it is leaving, and before its row in the view says so.
// A directory that is not read in between must still list the worker as leaving.
func TestStoppedWorker(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startNodes(t, gossiptest.NewMemory(1), 2)
		d := gossip.NewDirectory(group[1].View, group[1].Members)
		if here, absent := d.All(); len(here) != 2 || len(absent) != 0 {
			t.Fatalf("got workers %v, absent %v; want two workers", here, absent)
		}
		group[0].Members.SetLeaving(true)
		if err := group[0].Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // virtual time
		if _, absent := d.All(); len(absent) != 1 || !absent[0].Leaving {
			t.Errorf("after the stop: absent %+v, want one worker that is leaving", absent)
		}
	})
}

// TestCertifiedServers checks that a directory lists brokers and proxies that are not members while
// their certificates are valid, until they are removed.
func TestCertifiedServers(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startNodes(t, gossiptest.NewMemory(1), 2)
		d := gossip.NewDirectory(group[1].View, group[1].Members)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		check := func(when string, want ...bourse.Member) {
			t.Helper()
			time.Sleep(2 * time.Second) // virtual time
			if diff := cmp.Diff(want, d.Certified()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		publish := func(row wire.Row) {
			t.Helper()
			if _, err := group[0].View.Publish(t.Context(), row); err != nil {
				t.Fatal(err)
			}
		}
		certificate := func(id bourse.WorkerID, role bourse.Role, life time.Duration) wire.Row {
			now := time.Now()
			return inventory.CertifiedRow(&inventory.CertifiedMember{ID: id, Role: role, Region: "gru", IssuedAt: now, ExpiresAt: now.Add(life)})
		}
		broker, proxy := bourse.Member{ID: "b1", Role: bourse.RoleBroker, Region: "gru"}, bourse.Member{ID: "p1", Role: bourse.RoleProxy, Region: "gru"}
		publish(certificate("b1", bourse.RoleBroker, time.Hour))
		publish(certificate("p1", bourse.RoleProxy, 2*time.Hour))
		check("at first", broker, proxy)
		time.Sleep(time.Hour)
		check("after a certificate has expired", proxy)
		publish(inventory.RemovedRow(&proxy, time.Now()))
		check("removed")
		publish(certificate("p1", bourse.RoleProxy, time.Hour))
		check("joined again", proxy)
	})
}

func memory(members []bourse.Member) map[bourse.WorkerID]int64 {
	out := map[bourse.WorkerID]int64{}
	for _, m := range members {
		out[m.ID] = m.Free.Of("memory")
	}
	return out
}

// BenchmarkDirectory measures Candidates, which each order calls for its regions.
func BenchmarkDirectory(b *testing.B) {
	for _, n := range []int{2, 20} {
		b.Run(fmt.Sprint("workers=", n), func(b *testing.B) {
			network := gossiptest.NewLoopback()
			b.Cleanup(network.Close)
			group := startNodes(b, network, n)
			d := gossip.NewDirectory(group[0].View, group[0].Members)
			b.ReportAllocs()
			for b.Loop() {
				if len(d.Candidates("gru")) != n {
					b.Error("some candidates are missing")
				}
			}
		})
	}
}
