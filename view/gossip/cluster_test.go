package gossip_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
)

// TestLostOnLoopback shows, on real sockets, that a member lost for good is
// gone from every list within 5 s, and no one else is.
func TestLostOnLoopback(t *testing.T) {
	var told losses
	group := []running{startReal(t, gossip.Config{Self: worker(1), OnLost: told.add})}
	for i := 2; i <= 7; i++ {
		group = append(group, startReal(t, gossip.Config{Self: worker(i), Join: joinOf(group)}))
	}
	untilCount(t, group, 7)

	began := time.Now()
	group[6].kill()
	untilCount(t, group[:6], 6)
	took := time.Since(began)
	t.Logf("7 members: gone everywhere after %.1f s", took.Seconds())
	if took > 5*time.Second {
		t.Errorf("it took %s, want at most 5 s", took)
	}
	for _, m := range group[:6] {
		if _, ok := m.Worker("w7"); ok {
			t.Errorf("%s still has w7", m.Addr())
		}
	}
	group[0].stop() // OnLost has been called for all that was noticed
	if d := cmp.Diff([]bourse.WorkerID{"w7"}, told.list()); d != "" {
		t.Errorf("losses told (-want +got):\n%s", d)
	}
}

// TestLeaves shows that a member which ends is gone at once.
func TestLeaves(t *testing.T) {
	group := cluster(t, 4)
	began := time.Now()
	group[3].stop()
	untilCount(t, group[:3], 3)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := group[3].err(); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestComesBack shows that a killed worker is taken back at once, on another
// port and on its own, and that this is no loss.
func TestComesBack(t *testing.T) {
	for name, samePort := range map[string]bool{"elsewhere": false, "at its old address": true} {
		t.Run(name, func(t *testing.T) {
			var told losses
			group := []running{startReal(t, gossip.Config{Self: worker(1), OnLost: told.add})}
			group = append(group, startReal(t, gossip.Config{Self: worker(2), Join: joinOf(group)}))
			old := startReal(t, gossip.Config{Self: worker(3), Join: joinOf(group)})
			untilCount(t, append(group, old), 3)

			old.kill()
			began := time.Now()
			again := gossip.Config{Self: worker(3), Join: joinOf(group)}
			again.Self.Address = "127.0.0.1:5555"
			if samePort {
				again.Bind = addrPort(t, old.Addr())
			}
			back := startReal(t, again)
			for _, m := range append(group, back) {
				until(t, m.Members, "w3 has its new address", func() bool {
					w, ok := m.Worker("w3")
					return ok && w.Address == "127.0.0.1:5555"
				})
			}
			t.Logf("taken back after %.1f s", time.Since(began).Seconds())
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
			for _, m := range group { // the old life is found dead, and the new one stays
				until(t, m.Members, "w3 has one life", func() bool { return len(m.Members.Members()) == 3 })
			}
			group[0].stop()
			if got := told.list(); len(got) != 0 {
				t.Errorf("losses told: %v, want none", got)
			}
		})
	}
}

// TestSameIDRefused shows that the second of two living servers with one id is
// told so, and that no one ever lists it.
func TestSameIDRefused(t *testing.T) {
	group := cluster(t, 3)
	second := gossip.Config{Self: worker(3), Join: joinOf(group)}
	second.Self.Address = "127.0.0.1:6666"
	second.Self.Tag = 99
	m := startReal(t, second)
	err := m.err()
	if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Fatalf("run: got %v, want it to exist already", err)
	}
	t.Log(err)
	for _, m := range group {
		if w, ok := m.Worker("w3"); !ok || w.Address != worker(3).Address {
			t.Errorf("w3 is now %+v", w)
		}
		if _, ok := m.ByTag(99); ok {
			t.Error("the second one's tag is known")
		}
	}
	select {
	case <-m.Ready():
		t.Error("it was ready")
	default:
	}
}

// TestSameIDAtOnce shows that of two servers with one id that come at the same
// moment one stays.
func TestSameIDAtOnce(t *testing.T) {
	group := cluster(t, 2)
	var twins []running
	for _, address := range []string{"127.0.0.1:6661", "127.0.0.1:6662"} {
		c := gossip.Config{Self: worker(3), Join: joinOf(group)}
		c.Self.Address = address
		twins = append(twins, startReal(t, c))
	}
	refused := make(chan error, 2)
	for _, m := range twins {
		go func() { refused <- m.err() }()
	}
	if err := <-refused; bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Fatalf("the first to end: %v", err)
	}
	until(t, group[0].Members, "one of them is listed", func() bool { _, ok := group[0].Worker("w3"); return ok })
	for _, m := range twins {
		m.stop()
	}
	if err := <-refused; err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// TestTag shows how a worker finds a free tag at its first start, and that one
// which comes with another's is refused.
func TestTag(t *testing.T) {
	group := cluster(t, 2)
	fresh := gossip.Config{Self: worker(3), Join: joinOf(group)}
	fresh.Self.Tag = 0
	m := startReal(t, fresh)
	<-m.Ready()
	for tag, want := range map[bourse.WorkerTag]bool{1: true, 2: true, 3: false} {
		if got := m.TagInUse(tag); got != want {
			t.Errorf("tag %s in use: %v, want %v", tag, got, want)
		}
	}
	m.SetTag(3)
	until(t, group[1].Members, "tag 3 is known", func() bool { w, ok := group[1].ByTag(3); return ok && w.ID == "w3" })

	same := gossip.Config{Self: worker(4), Join: joinOf(group)}
	same.Self.Tag = 2
	if err := startReal(t, same).err(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("a newcomer with another's tag: got %v", err)
	}
}
