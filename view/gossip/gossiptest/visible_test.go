package gossiptest_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// Flags of TestVisibleToAll. To measure a thousand members, use "-args -members=1000
// -changes=200 -rate=10".
var (
	members = flag.Int("members", 20, "size of the group in TestVisibleToAll")
	changes = flag.Int("changes", 60, "in TestVisibleToAll")
	rate    = flag.Int("rate", 50, "changes per second")
	seed    = flag.Uint64("seed", 1, "seed of TestVisibleToAll's network and changes")
)

// TestVisibleToAll measures, in virtual time, how long it takes until a change is in all views, with one percent packet
// loss and a delay of 30 to 70 ms. It measures a group whose members find one another by gossip, and one whose members
// know one another from the start, which also works for a thousand members.
func TestVisibleToAll(t *testing.T) {
	t.Run("found", func(t *testing.T) {
		virtual(t, func(t *testing.T, network *gossiptest.Memory) []*gossiptest.Node {
			group, err := gossiptest.StartGroup(t.Context(), network, *members, gossiptest.NodeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := gossiptest.StopAll(group); err != nil {
					t.Errorf("stop: %v", err)
				}
			})
			time.Sleep(5 * time.Second) // virtual time; until the members have finished joining
			return group
		})
	})
	t.Run("given", func(t *testing.T) {
		virtual(t, func(t *testing.T, network *gossiptest.Memory) []*gossiptest.Node {
			group, err := startGiven(network, *members, *seed)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := group.stop(); err != nil {
					t.Errorf("stop: %v", err)
				}
			})
			return group.nodes
		})
	})
}

// virtual measures a group in a bubble of virtual time.
func virtual(t *testing.T, start func(*testing.T, *gossiptest.Memory) []*gossiptest.Node) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // runs last, and waits until memberlist's probes have finished
		network := gossiptest.NewMemory(*seed)
		group := start(t, network)
		network.Lose(0.01)
		network.Delay(50*time.Millisecond, 20*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		m, err := gossiptest.Measure(ctx, group, gossiptest.Load{
			Changes: *changes, Every: time.Second / time.Duration(*rate), Settle: time.Minute, Dice: rand.New(rand.NewPCG(*seed, 2)),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %s", *seed, m)
		if m.Unseen > 0 || m.P99 > 5*time.Second {
			t.Errorf("%d changes did not reach all members; p99 of the others %s, want 5 s", m.Unseen, m.P99)
		}
	})
}
