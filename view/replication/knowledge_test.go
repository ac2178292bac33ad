package replication_test

import (
	"context"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
)

// knowsCluster reports whether a node knows its cluster.
func knowsCluster(n *gossiptest.Node) bool {
	select {
	case <-n.Replicator.Known():
		return true
	default:
		return false
	}
}

// await fails the test unless c is closed in time.
func await(t *testing.T, c <-chan struct{}, within time.Duration, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(within):
		t.Fatalf("%s: not within %s", what, within)
	}
}

// directing runs a directory on a node until the test ends.
func directing(t *testing.T, n *gossiptest.Node) *gossip.Directory {
	t.Helper()
	d := gossip.NewDirectory(n.View, n.Members)
	d.Source(n.Replicator)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestLoneServerDoesNotKnowCluster checks that a server that has not met any other server never
// knows its cluster, and that two new servers learn it from each other.
func TestLoneServerDoesNotKnowCluster(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		one := startNode(t, net, gossiptest.NodeConfig{Number: 1})
		d := directing(t, one)
		time.Sleep(time.Hour)
		if knowsCluster(one) || d.Knows() {
			t.Error("the server claims to know its cluster, but has met no other member")
		}
		two := startNode(t, net, gossiptest.NodeConfig{Number: 2, Join: []string{one.Addr()}})
		await(t, d.Known(), 3*time.Second, "the first server learns from the second")
		await(t, two.Replicator.Known(), 3*time.Second, "the second server learns from the first")
	})
}

// TestNewMemberLearnsOfAbsentWorkers checks that a server that has just started reports that it
// knows its cluster only once it knows every worker, including a dead one.
func TestNewMemberLearnsOfAbsentWorkers(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, 4, gossiptest.NodeConfig{})
		for _, n := range group {
			publish(t, n, inventory.WorkerRow(&bourse.Facts{Worker: n.ID, Tag: bourse.WorkerTag(n.Number), Region: "gru"}, false))
		}
		untilEqual(t, group, 10*time.Second)
		_ = group[3].Kill() // ignore the errors of a node that loses its network
		time.Sleep(time.Minute)

		began := time.Now()
		late := startNode(t, net, gossiptest.NodeConfig{Number: 5, Join: []string{group[0].Addr()}})
		d := directing(t, late)
		if d.Knows() {
			t.Error("the server claims to know its cluster before it has met another member")
		}
		await(t, d.Known(), 5*time.Second, "the new member knows the cluster")
		t.Logf("after %s", time.Since(began))
		_, absent := d.All()
		if len(absent) != 1 || absent[0].ID != "w4" || absent[0].Tag != 4 || absent[0].Region != "gru" {
			t.Fatalf("absent: %+v, want w4", absent)
		}
		if since := absent[0].Since; since.Before(began) || since.After(time.Now()) {
			t.Errorf("w4 is listed as absent since %s, before the cluster was known at %s", since, began)
		}
	})
}

// TestAbsentWorkersAreRemembered checks that a worker that is lost before it has published its
// row is listed as absent.
func TestAbsentWorkersAreRemembered(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, 3, gossiptest.NodeConfig{})
		d := directing(t, group[0])
		await(t, d.Known(), 5*time.Second, "the first server knows the cluster")
		here, away := d.All()
		if got := len(here) + len(away); got != 3 {
			t.Fatalf("%d workers, want 3", got)
		}
		_ = group[2].Kill() // the node has not published its row
		began := time.Now()
		time.Sleep(10 * time.Second)
		_, absent := d.All()
		if len(absent) != 1 || absent[0].ID != "w3" || absent[0].Since.Before(began) {
			t.Fatalf("absent: %+v, want w3 since %s or later", absent, began)
		}
	})
}

// TestClusterStartsTogether checks that servers that start at the same time, none of which knows
// the cluster, do not wait for one another forever.
func TestClusterStartsTogether(t *testing.T) {
	for _, n := range []int{2, 4, 12} {
		gossiptest.Virtual(t, func(t *testing.T) {
			for _, n := range startGroup(t, gossiptest.NewMemory(1), n, gossiptest.NodeConfig{}) {
				await(t, n.Replicator.Known(), 5*time.Second, string(n.ID)+" knows the cluster")
			}
		})
	}
}
