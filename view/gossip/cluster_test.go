package gossip_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
)

// TestLostOnLoopback checks, on real sockets, that a permanently lost member disappears from
// every list within 5 s, and that no other member does.
func TestLostOnLoopback(t *testing.T) {
	var lost losses
	group := []running{startReal(t, gossip.Config{Self: worker(1), OnLost: lost.add})}
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
		t.Errorf("detection took %s, want at most 5 s", took)
	}
	for _, m := range group[:6] {
		if _, ok := m.Worker("w7"); ok {
			t.Errorf("%s still has w7", m.Addr())
		}
	}
	group[0].stop() // when stop returns, OnLost has been called for every loss that the member has noticed
	if d := cmp.Diff([]bourse.WorkerID{"w7"}, lost.list()); d != "" {
		t.Errorf("reported losses (-want +got):\n%s", d)
	}
}

// TestLeaves checks that a member that leaves disappears from the lists at once.
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

// TestComesBack checks that a killed worker that restarts, on its old port or on another one, is
// a member again at once and is not reported as lost.
func TestComesBack(t *testing.T) {
	for name, samePort := range map[string]bool{"elsewhere": false, "at its old address": true} {
		t.Run(name, func(t *testing.T) {
			var lost losses
			group := []running{startReal(t, gossip.Config{Self: worker(1), OnLost: lost.add})}
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
			t.Logf("listed again after %.1f s", time.Since(began).Seconds())
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
			for _, m := range group { // the old boot is declared dead, and the new one remains
				until(t, m.Members, "w3 is listed with one boot", func() bool { return len(m.Members.Members()) == 3 })
			}
			group[0].stop()
			if got := lost.list(); len(got) != 0 {
				t.Errorf("reported losses: %v, want none", got)
			}
		})
	}
}

// TestSameIDRefused checks that the second of two running servers with the same id is refused,
// and that nobody ever lists it.
func TestSameIDRefused(t *testing.T) {
	group := cluster(t, 3)
	second := gossip.Config{Self: worker(3), Join: joinOf(group)}
	second.Self.Address = "127.0.0.1:6666"
	second.Self.Tag = 99
	m := startReal(t, second)
	err := m.err()
	if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Fatalf("run: got %v, want already_exists", err)
	}
	t.Log(err)
	for _, m := range group {
		if w, ok := m.Worker("w3"); !ok || w.Address != worker(3).Address {
			t.Errorf("w3 is now %+v", w)
		}
		if _, ok := m.ByTag(99); ok {
			t.Error("the second server's tag is known")
		}
	}
	select {
	case <-m.Ready():
		t.Error("the second server became ready")
	default:
	}
}

// TestSameIDAtOnce checks that if two servers with the same id start at the same time, one of
// them remains.
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
		t.Fatalf("the server that stopped first: got %v, want already_exists", err)
	}
	until(t, group[0].Members, "one of the two servers is listed", func() bool { _, ok := group[0].Worker("w3"); return ok })
	for _, m := range twins {
		m.stop()
	}
	if err := <-refused; err != nil {
		t.Errorf("the other server: %v", err)
	}
}

// TestTag checks that a new worker finds a free tag at its first start, and that a worker with
// another worker's tag is refused.
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
		t.Errorf("a new worker with another worker's tag: got %v, want already_exists", err)
	}
}
