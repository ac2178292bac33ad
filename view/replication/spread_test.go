package replication_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

func having(group []*gossiptest.Node, p wire.Position) int {
	n := 0
	for _, m := range group {
		if m.View.Head(p.Stream) >= p.Seq {
			n++
		}
	}
	return n
}

// TestSpread checks that the requested number of other members have a change when AwaitCopies
// returns, even if rumors do not work and the members are missing earlier transactions.
func TestSpread(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		quiet := replication.Timing{FullSends: -1, Announcements: -1, MaxInterval: time.Hour, MinInterval: time.Hour}
		group := startGroup(t, net, 5, gossiptest.NodeConfig{Pace: quiet})
		time.Sleep(10 * time.Second) // virtual time
		n := group[0]
		for i := range 10 {
			publish(t, n, release(i))
		}
		p := n.View.Self()
		if got := having(group[1:], p); got != 0 {
			t.Fatalf("%d others already have the change, so rumors work", got)
		}
		if err := n.Replicator.AwaitCopies(t.Context(), p, 2); err != nil {
			t.Fatal(err)
		}
		if got := having(group[1:], p); got != 2 {
			t.Errorf("%d others have the change, want 2", got)
		}
		if err := n.Replicator.AwaitCopies(t.Context(), p, 100); err != nil {
			t.Fatal(err)
		}
		if got := having(group[1:], p); got != 4 {
			t.Errorf("%d others have the change, want all", got)
		}
	})
}

// TestSpreadFindsOthers kills a member whose loss nobody has noticed yet. Other members must
// receive the changes instead.
func TestSpreadFindsOthers(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 4, gossiptest.NodeConfig{})
		go func() { _ = group[3].Kill() }() // ignore the errors of a node that loses its network
		synctest.Wait()                     // until its network is stopped
		for i := range 10 {
			p := publish(t, group[0], release(i))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := group[0].Replicator.AwaitCopies(ctx, p, 2); err != nil {
				t.Errorf("change %d: %v", i, err)
			}
			cancel()
			if got := having(group[1:3], p); got != 2 {
				t.Errorf("change %d: %d running members have it", i, got)
			}
		}
	})
}

// TestSpreadFails checks the result of AwaitCopies while the network is partitioned, and while
// there are no other members.
func TestSpreadFails(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, 3, gossiptest.NodeConfig{})
		net.Partition(func(from, to int) bool { return from != to })
		p := publish(t, group[0], release(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := group[0].Replicator.AwaitCopies(ctx, p, 1); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("during the partition: got %v, want unavailable", err)
		}
		time.Sleep(time.Minute) // virtual time; now there are no other members
		if err := group[0].Replicator.AwaitCopies(t.Context(), p, 1); err != nil {
			t.Errorf("alone: %v", err)
		}
		if err := group[0].Replicator.AwaitCopies(t.Context(), wire.Position{}, 1); err != nil {
			t.Errorf("nothing: %v", err)
		}
	})
}

// TestHealthOfAll requests the health of all members, one of which is dead but still in the
// list.
func TestHealthOfAll(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 4, gossiptest.NodeConfig{})
		publish(t, group[1], release(1))
		untilEqual(t, group, time.Minute)
		_ = group[3].Kill() // ignore the errors of a node that loses its network
		got := group[0].Replicator.Health(t.Context())
		if len(got) != 4 {
			t.Fatalf("%d members answered: %+v", len(got), got)
		}
		for i, m := range got[:3] {
			if m.ID != group[i].ID || m.Error != "" || !m.Reachable || m.Epoch == 0 || m.Streams == 0 || len(m.Heads) == 0 {
				t.Errorf("got %+v", m)
			}
		}
		if m := got[3]; m.ID != "w4" || m.Error == "" || m.Reachable {
			t.Errorf("the dead member: %+v", m)
		}
	})
}

// TestSyncedAlone checks that a member without other members is in sync at once.
func TestSyncedAlone(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		n := startNode(t, gossiptest.NewMemory(1), gossiptest.NodeConfig{Number: 1})
		began := time.Now()
		<-n.Replicator.Synced()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
