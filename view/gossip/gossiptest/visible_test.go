package gossiptest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// What TestVisibleToAll measures. The benchmark asks for a thousand members.
var (
	members = flag.Int("members", 20, "of the group in TestVisibleToAll")
	changes = flag.Int("changes", 60, "in TestVisibleToAll")
	rate    = flag.Int("rate", 50, "of changes, a second")
	seed    = flag.Uint64("seed", 1, "of TestVisibleToAll's network and changes")
	figures = flag.String("figures", "", "file into which TestVisibleToAll writes what it measured, as JSON")
)

// TestVisibleToAll measures in virtual time how long a change takes to be in
// all views, while one packet of a hundred is lost and each takes 30 to 70 ms:
// of members that found one another, and of members that were given one
// another, which is what a thousand can afford.
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
			time.Sleep(5 * time.Second) // of the bubble: until the noise of joining is over
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
		t.Cleanup(func() { time.Sleep(time.Minute) }) // runs last: memberlist's probes end
		network := gossiptest.NewMemory(*seed)
		group := start(t, network)
		network.Lose(0.01)
		network.Delay(50*time.Millisecond, 20*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		m, err := gossiptest.Measure(ctx, group, gossiptest.Load{
			Changes: *changes, Every: time.Second / time.Duration(*rate), Settle: time.Minute, Dice: rand.New(rand.NewPCG(*seed, 2)), Row: started,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %s", *seed, m)
		write(t, m)
		if m.Unseen > 0 || m.P99 > 5*time.Second {
			t.Errorf("%d changes were not seen by all, p99 of the others %s: want 5 s", m.Unseen, m.P99)
		}
	})
}

// started is a node's machine after its nth start or stop, with the events that
// come with it: about 800 bytes.
func started(n *gossiptest.Node, nth int) wire.Row {
	at := time.Unix(1_800_000_000+int64(nth), 0)
	m := &bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%06x%08x", n.Number, 1)), App: "web", Name: fmt.Sprintf("web-%d", n.Number), Region: "gru",
		State: []bourse.State{bourse.StateStarted, bourse.StateStopped}[nth%2], Boot: bourse.Boot{Number: nth, PID: 1000 + nth, Port: 20000},
		Instance: "01HZZZZZZZ0000000000000000", UpdatedAt: at,
	}
	for i := range byte(4) {
		m.LastEvents = append(m.LastEvents, bourse.Event{
			ID: bourse.EventIDAt(at, [10]byte{byte(n.Number), byte(nth), i}), Type: bourse.EventStart, From: bourse.StateStarting,
			State: m.State, Source: bourse.SourceUser, At: at, Instance: m.Instance,
		})
	}
	return inventory.MachineRow(m)
}

func write(t *testing.T, m gossiptest.Measured) {
	t.Helper()
	if *figures == "" {
		return
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*figures, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
