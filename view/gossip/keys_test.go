package gossip_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// TestKeysRoll changes the key of a running group, member by member. No member may be lost
// during the change, and the old key must not work afterward.
func TestKeysRoll(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		old, next := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
		net, lost := gossiptest.NewMemory(1), new(losses)
		var group []running
		for i := 1; i <= 4; i++ {
			group = append(group, joinVirtual(t, net, i, gossip.Config{Self: worker(i), Key: old, Join: joinOf(group), OnLost: lost.add}))
		}
		untilCount(t, group, 4)
		for _, keys := range [][][]byte{{old, next}, {next, old}, {next}} {
			for _, m := range group {
				if err := m.SetKeys(keys); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second) // while the members' keys differ
				untilCount(t, group, 4)
			}
		}
		if got := lost.list(); len(got) != 0 {
			t.Errorf("reported losses: %v, want none", got)
		}
		late := joinVirtual(t, net, 5, gossip.Config{Self: worker(5), Key: next, Join: joinOf(group)})
		untilCount(t, append(group, late), 5)
		joinVirtual(t, net, 6, gossip.Config{Self: worker(6), Key: old, Join: joinOf(group)})
		time.Sleep(30 * time.Second)
		untilCount(t, append(group, late), 5)
	})
}

// TestSetKeysRefuses checks that SetKeys neither enables nor disables encryption, and that an
// invalid key changes nothing.
func TestSetKeysRefuses(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		open := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		if err := open.SetKeys([][]byte{make([]byte, 16)}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("a key for a server without encryption: got %v, want failed_precondition", err)
		}
		closed := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Key: make([]byte, 16)})
		if err := closed.SetKeys(nil); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("no key for a server with encryption: got %v, want failed_precondition", err)
		}
		if err := closed.SetKeys([][]byte{make([]byte, 16), make([]byte, 7)}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("a key of 7 bytes: got %v, want invalid", err)
		}
	})
}
