package gossip_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
)

// startVirtual runs n workers on a network in memory.
func startVirtual(t *testing.T, net *memNet, n int, told *losses) []running {
	t.Helper()
	var group []running
	for i := 1; i <= n; i++ {
		group = append(group, joinVirtual(t, net, i, gossip.Config{Self: worker(i), Join: joinOf(group), OnLost: told.add}))
	}
	t.Cleanup(func() { // side by side: a hundred that leave in turn take long
		var wg sync.WaitGroup
		for _, m := range group {
			wg.Go(m.stop)
		}
		wg.Wait()
	})
	return group
}

// virtual runs a test in a bubble of virtual time. At its end memberlist's own
// goroutines, of probes under way, get the time to finish.
func virtual(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // runs last
		test(t)
	})
}

// joinVirtual runs a worker at an address of the network in memory.
func joinVirtual(t *testing.T, net *memNet, address int, c gossip.Config) running {
	t.Helper()
	end := net.end(address)
	c.Transport = end
	return start(t, c, end.kill)
}

// TestLostVirtual measures in virtual time, without a busy machine's noise,
// how long a killed member stays in the slowest list.
func TestLostVirtual(t *testing.T) {
	for _, n := range []int{2, 7, 25, manyMembers} {
		t.Run(fmt.Sprint("members=", n), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				group := startVirtual(t, newMemNet(), n, new(losses))
				untilCount(t, group, n)
				time.Sleep(5 * time.Second) // of the bubble: until the noise of joining is over
				var worst time.Duration
				for round := range min(3, n-1) {
					victim := n - 1 - round
					began := time.Now()
					group[victim].kill()
					untilCount(t, group[:victim], victim)
					worst = max(worst, time.Since(began))
				}
				t.Logf("%d members: gone everywhere after at most %.1f s", n, worst.Seconds())
				if worst > 5*time.Second {
					t.Errorf("it took %s, want at most 5 s", worst)
				}
			})
		})
	}
}

// TestLossyNetwork shows that nobody is lost because a tenth of all packets
// is.
func TestLossyNetwork(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net, told := newMemNet(), new(losses)
		group := startVirtual(t, net, 10, told)
		untilCount(t, group, 10)
		dice := rand.New(rand.NewPCG(1, 2))
		net.lose(func() bool { return dice.IntN(10) == 0 })
		time.Sleep(10 * time.Minute)
		net.lose(nil)
		untilCount(t, group, 10)
		if got := told.list(); len(got) != 0 {
			t.Errorf("losses told: %v, want none", got)
		}
	})
}

// TestPartitionHeals cuts a group in two for longer than anybody gossips to
// the dead, and shows that it finds together again.
func TestPartitionHeals(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net, told := newMemNet(), new(losses)
		group := startVirtual(t, net, 7, told)
		untilCount(t, group, 7)

		net.partition(func(from, to int) bool { return (from <= 3) != (to <= 3) })
		untilCount(t, group[:3], 3)
		untilCount(t, group[3:], 4)
		time.Sleep(5 * time.Minute)
		untilCount(t, group[:3], 3)

		net.partition(nil)
		began := time.Now()
		untilCount(t, group, 7)
		t.Logf("together again after %.1f s", time.Since(began).Seconds())
		if got := len(told.list()); got != 3*4+4*3 {
			t.Errorf("%d losses were told, want %d", got, 3*4+4*3)
		}
	})
}

// TestPartitionWithTwins starts a server twice, on both sides of a partition:
// when it heals, the later one ends.
func TestPartitionWithTwins(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net, told := newMemNet(), new(losses)
		group := startVirtual(t, net, 4, told)
		untilCount(t, group, 4)
		net.partition(func(from, to int) bool { return (from <= 2) != (to <= 2) })
		untilCount(t, group[:2], 2)
		twin := worker(4)
		twin.Address = "127.0.0.1:7777"
		net.partition(func(from, to int) bool { return (from <= 2 || from == 9) != (to <= 2 || to == 9) })
		second := joinVirtual(t, net, 9, gossip.Config{Self: twin, Join: joinOf(group)})
		until(t, group[0].Members, "the twin is listed", func() bool { _, ok := group[0].Worker("w4"); return ok })

		net.partition(nil)
		if err := second.err(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			t.Errorf("the twin ended with %v", err)
		}
		for _, m := range group {
			until(t, m.Members, "w4 is the first one", func() bool { w, ok := m.Worker("w4"); return ok && w.Address == worker(4).Address })
		}
	})
}

// TestTwinTooFarForPings shows that a twin which answers pings too late is
// found as well.
func TestTwinTooFarForPings(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net := newMemNet()
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		middle := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Join: []string{first.Addr()}})
		untilCount(t, []running{first, middle}, 2)
		// The two hear of each other through the middle only.
		net.partition(func(from, to int) bool { return from+to == 1+3 })
		twin := joinVirtual(t, net, 3, gossip.Config{Self: worker(1), Join: []string{middle.Addr()}})
		began := time.Now()
		if err := twin.err(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			t.Errorf("the twin ended with %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestSeedsComeLater starts members before anybody whom they are to join, and
// again after all of those were gone.
func TestSeedsComeLater(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net, told := newMemNet(), new(losses)
		seeds := []string{"10.0.0.1:7946", "10.0.0.2:7946"}
		early := joinVirtual(t, net, 3, gossip.Config{Self: worker(3), Join: seeds, OnLost: told.add})
		<-early.Ready() // alone is fine
		time.Sleep(time.Minute)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		began := time.Now()
		untilCount(t, []running{early, first}, 2)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s to find the first", took)
		}
		first.kill()
		untilCount(t, []running{early}, 1)
		time.Sleep(2 * time.Hour)
		second := joinVirtual(t, net, 2, gossip.Config{Self: worker(2)})
		untilCount(t, []running{early, second}, 2)
		if d := cmp.Diff([]bourse.WorkerID{"w1"}, told.list()); d != "" {
			t.Errorf("losses told (-want +got):\n%s", d)
		}
	})
}

// TestComesBackIsNoLoss kills a worker, starts it again and waits until its
// first life has been found dead.
func TestComesBackIsNoLoss(t *testing.T) {
	virtual(t, func(t *testing.T) {
		net, told := newMemNet(), new(losses)
		group := startVirtual(t, net, 4, told)
		killed := joinVirtual(t, net, 5, gossip.Config{Self: worker(5), Join: joinOf(group)})
		untilCount(t, append(group, killed), 5)
		killed.kill()
		joinVirtual(t, net, 6, gossip.Config{Self: worker(5), Join: joinOf(group)})
		time.Sleep(time.Minute)
		untilCount(t, group, 5)
		if got := told.list(); len(got) != 0 {
			t.Errorf("losses told: %v, want none", got)
		}
	})
}

// TestUpdate shows what of a worker's free amounts reaches the others, and
// that leaving does at once.
func TestUpdate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		group := startVirtual(t, newMemNet(), 2, new(losses))
		untilCount(t, group, 2)
		here, there := group[0], group[1]
		time.Sleep(2 * time.Second)

		seen := map[int64]bool{}
		for i := range int64(3000) { // for 3 s, one each millisecond
			here.Update(bourse.Amounts{{Resource: "memory", Amount: 1 << 20}, {Resource: "cpu", Amount: 100_000 - 10*i}}, false)
			time.Sleep(time.Millisecond)
			w, _ := there.Worker("w1")
			seen[w.Free.Of("cpu")] = true
		}
		if len(seen) < 3 || len(seen) > 6 {
			t.Errorf("the other one saw %d amounts, want 3 to 6: %v", len(seen), seen)
		}
		time.Sleep(2 * time.Second)
		last := int64(100_000 - 10*2999)
		w, _ := there.Worker("w1")
		if cpu := w.Free.Of("cpu"); cpu > last || cpu < last*7/8 || w.Free.Of("memory") != 1<<20 {
			t.Errorf("in the end it sees %v, want cpu a little below %d", w.Free, last)
		}

		here.Update(bourse.Amounts{{Resource: "cpu", Amount: -1}}, true) // ignored
		here.Update(w.Free, true)
		began := time.Now()
		until(t, there.Members, "w1 takes no orders", func() bool { return len(there.Candidates("gru")) == 1 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("leaving took %s to be known", took)
		}
		if got := len(there.Workers()); got != 2 {
			t.Errorf("%d workers, want 2: one that leaves is still there", got)
		}
	})
}
