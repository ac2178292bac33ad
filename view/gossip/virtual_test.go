package gossip_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// startVirtual runs n workers on an in-memory network.
func startVirtual(t *testing.T, net *gossiptest.Memory, n int, lost *losses) []running {
	t.Helper()
	var group []running
	for i := 1; i <= n; i++ {
		group = append(group, joinVirtual(t, net, i, gossip.Config{Self: worker(i), Join: joinOf(group), OnLost: lost.add}))
	}
	t.Cleanup(func() { // in parallel, because stopping a hundred members one by one would take long
		var wg sync.WaitGroup
		for _, m := range group {
			wg.Go(m.stop)
		}
		wg.Wait()
	})
	return group
}

// joinVirtual runs a worker at an address of the in-memory network.
func joinVirtual(t *testing.T, net *gossiptest.Memory, address int, c gossip.Config) running {
	t.Helper()
	end := net.End(address)
	c.Transport = end
	return start(t, c, end.Kill)
}

// TestLostVirtual measures how long it takes until the last of the other members has removed a
// killed member from its list. It uses virtual time, so a busy machine does not affect the result.
func TestLostVirtual(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 7, 25, manyMembers} {
		t.Run(fmt.Sprint("members=", n), func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				group := startVirtual(t, gossiptest.NewMemory(1), n, new(losses))
				untilCount(t, group, n)
				time.Sleep(5 * time.Second) // virtual time; until the members have finished joining
				var took []time.Duration
				for round := range min(3, n-1) {
					victim := n - 1 - round
					began := time.Now()
					group[victim].kill()
					untilCount(t, group[:victim], victim)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				middle, worst := took[len(took)/2], took[len(took)-1]
				t.Logf("%d members: gone everywhere after %.1f s, at most %.1f s", n, middle.Seconds(), worst.Seconds())
				// Members probe and notify random members, so about one loss in a few hundred
				// takes a little longer than 5 s.
				if middle > 5*time.Second || worst > 10*time.Second {
					t.Errorf("detection took %s (median) and %s (maximum), want 5 s and at most 10 s", middle, worst)
				}
			})
		})
	}
}

// TestLossyNetwork checks that no member is lost if a tenth of all packets is lost.
func TestLossyNetwork(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net, lost := gossiptest.NewMemory(1), new(losses)
		group := startVirtual(t, net, 10, lost)
		untilCount(t, group, 10)
		net.Lose(0.1)
		time.Sleep(3 * time.Minute)
		net.Lose(0)
		untilCount(t, group, 10)
		if got := lost.list(); len(got) != 0 {
			t.Errorf("reported losses: %v, want none", got)
		}
	})
}

// TestPartitionHeals partitions a group for longer than members gossip to dead ones, and checks
// that the two halves find each other again afterward.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net, lost := gossiptest.NewMemory(1), new(losses)
		group := startVirtual(t, net, 7, lost)
		untilCount(t, group, 7)

		net.Partition(func(from, to int) bool { return (from <= 3) != (to <= 3) })
		untilCount(t, group[:3], 3)
		untilCount(t, group[3:], 4)
		time.Sleep(5 * time.Minute)
		untilCount(t, group[:3], 3)

		net.Partition(nil)
		began := time.Now()
		untilCount(t, group, 7)
		t.Logf("together again after %.1f s", time.Since(began).Seconds())
		if got := len(lost.list()); got != 3*4+4*3 {
			t.Errorf("%d losses were reported, want %d", got, 3*4+4*3)
		}
	})
}

// TestPartitionWithTwins starts two servers with the same id, on different sides of a partition.
// When the partition ends, the later one must stop.
func TestPartitionWithTwins(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, lost := gossiptest.NewMemory(1), new(losses)
		group := startVirtual(t, net, 4, lost)
		untilCount(t, group, 4)
		net.Partition(func(from, to int) bool { return (from <= 2) != (to <= 2) })
		untilCount(t, group[:2], 2)
		twin := worker(4)
		twin.Address = "127.0.0.1:7777"
		net.Partition(func(from, to int) bool { return (from <= 2 || from == 9) != (to <= 2 || to == 9) })
		second := joinVirtual(t, net, 9, gossip.Config{Self: twin, Join: joinOf(group)})
		until(t, group[0].Members, "the twin is listed", func() bool { _, ok := group[0].Worker("w4"); return ok })

		net.Partition(nil)
		if err := second.err(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			t.Errorf("the twin ended with %v", err)
		}
		for _, m := range group {
			until(t, m.Members, "w4 is the first one", func() bool { w, ok := m.Worker("w4"); return ok && w.Address == worker(4).Address })
		}
	})
}

// TestTwinTooFarForPings checks that a second server with the same id is also detected if pings
// cannot reach it.
func TestTwinTooFarForPings(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		middle := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Join: []string{first.Addr()}})
		untilCount(t, []running{first, middle}, 2)
		// The two servers with the same id can communicate only through the one in the middle.
		net.Partition(func(from, to int) bool { return from+to == 1+3 })
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

// TestSeedsComeLater starts a member before the members that it should join. It checks that the member finds them, and
// finds them again after they were down for hours.
func TestSeedsComeLater(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, lost := gossiptest.NewMemory(1), new(losses)
		seeds := []string{"10.0.0.1:7946", "10.0.0.2:7946"}
		early := joinVirtual(t, net, 3, gossip.Config{Self: worker(3), Join: seeds, OnLost: lost.add})
		<-early.Ready() // a member becomes ready even if it is alone
		time.Sleep(time.Minute)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		began := time.Now()
		untilCount(t, []running{early, first}, 2)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the member found the first server only after %s", took)
		}
		first.kill()
		untilCount(t, []running{early}, 1)
		time.Sleep(2 * time.Hour)
		second := joinVirtual(t, net, 2, gossip.Config{Self: worker(2)})
		untilCount(t, []running{early, second}, 2)
		if d := cmp.Diff([]bourse.WorkerID{"w1"}, lost.list()); d != "" {
			t.Errorf("reported losses (-want +got):\n%s", d)
		}
	})
}

// TestReturningMemberIsNotLost kills a worker, restarts it, and waits until its first boot has
// been declared dead. The worker must not be reported as lost.
func TestReturningMemberIsNotLost(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, lost := gossiptest.NewMemory(1), new(losses)
		group := startVirtual(t, net, 4, lost)
		killed := joinVirtual(t, net, 5, gossip.Config{Self: worker(5), Join: joinOf(group)})
		untilCount(t, append(group, killed), 5)
		killed.kill()
		joinVirtual(t, net, 6, gossip.Config{Self: worker(5), Join: joinOf(group)})
		time.Sleep(time.Minute)
		untilCount(t, group, 5)
		if got := lost.list(); len(got) != 0 {
			t.Errorf("reported losses: %v, want none", got)
		}
	})
}

// TestLeaving checks that the others learn at once that a worker is leaving, and still list it.
func TestLeaving(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startVirtual(t, gossiptest.NewMemory(1), 2, new(losses))
		untilCount(t, group, 2)
		here, there := group[0], group[1]
		for _, leaving := range []bool{true, false} {
			here.SetLeaving(leaving)
			began := time.Now()
			until(t, there.Members, "w1's leaving state is known", func() bool { return len(there.Candidates("gru")) == 1 == leaving })
			if took := time.Since(began); took > time.Second {
				t.Errorf("leaving=%v was known after %s", leaving, took)
			}
			if got := len(there.Workers()); got != 2 {
				t.Errorf("%d workers, want 2, including the leaving one", got)
			}
		}
	})
}

// TestStopAfterLeaving stops a worker immediately after SetLeaving. The others must learn that it is leaving before they
// learn that it has left.
func TestStopAfterLeaving(t *testing.T) {
	for range 10 {
		gossiptest.Virtual(t, stopAfterLeaving)
	}
}

func stopAfterLeaving(t *testing.T) {
	var mu sync.Mutex
	left := map[bool]int{} // number of reported losses, by whether the lost member was leaving
	onLost := func(m bourse.Member, _ time.Time) {
		mu.Lock()
		defer mu.Unlock()
		left[m.Leaving]++
	}
	net := gossiptest.NewMemory(1)
	var group []running
	for i := 1; i <= 4; i++ {
		group = append(group, joinVirtual(t, net, i, gossip.Config{Self: worker(i), Join: joinOf(group), OnLost: onLost}))
	}
	untilCount(t, group, 4)
	time.Sleep(5 * time.Second) // virtual time; until the members have finished joining
	group[3].Renew()            // another update is being sent
	synctest.Wait()
	group[3].SetLeaving(true)
	group[3].stop()
	untilCount(t, group[:3], 3)
	time.Sleep(5 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	if left[true] != 3 || left[false] != 0 {
		t.Errorf("%d members listed the worker as leaving, %d did not; want 3 and 0", left[true], left[false])
	}
}

// slowLog is a slog.Handler that lets other goroutines run before it discards a record. memberlist logs while it
// holds its lock.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	for range 1000 {
		runtime.Gosched()
	}
	return nil
}

// suspicion encodes a message that suspects a member.
func suspicion(name string, incarnation uint32) []byte {
	b := append([]byte{3, 0x83, 0xa0 | 11}, "Incarnation"...) // the message's type; a map with three fields
	b = binary.BigEndian.AppendUint32(append(b, 0xce), incarnation)
	b = append(append(b, 0xa0|4), "Node"...)
	b = append(append(b, 0xa0|byte(len(name))), name...)
	return append(b, 0xa0|4, 'F', 'r', 'o', 'm', 0xa0|1, 'x')
}

// TestUpdatesDuringRefutations changes a member's metadata while the member refutes suspicions. The change must not be
// lost.
func TestUpdatesDuringRefutations(t *testing.T) {
	keys, err := gossip.NewKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // without published, about one round in 200 fails
		gossiptest.Virtual(t, func(t *testing.T) {
			network := gossiptest.NewMemory(1)
			here := joinVirtual(t, network, 1, gossip.Config{Self: worker(1), Log: slog.New(slowLog{slog.DiscardHandler})})
			there := joinVirtual(t, network, 2, gossip.Config{Self: worker(2), Join: []string{here.Addr()}})
			untilCount(t, []running{here, there}, 2)
			w := httptest.NewRecorder()
			gossip.SelfHandler(here.Members).ServeHTTP(w, httptest.NewRequest(http.MethodGet, gossip.PathSelf, nil))
			self, err := gossip.ReadSelf(w.Result())
			if err != nil {
				t.Fatal(err)
			}
			accuser := gossip.New(network.End(50), "bourse/bourse", keys, func(net.Addr, error) {})
			defer func() { _ = accuser.Shutdown() }()
			for i := range uint32(20) {
				_, _ = accuser.WriteTo(suspicion(self.Names[0], 1000+10*i), here.Addr())
			}
			here.SetLeaving(true)
			until(t, there.Members, "it is leaving", func() bool { return len(there.Candidates("gru")) == 1 })
		})
	}
}
