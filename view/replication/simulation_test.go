package replication_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

var simSeed = flag.Uint64("sim.seed", 0, "run only the simulation with this seed")

// TestSimulation runs groups under loss, delay, partitions, crashes, deletions of the view's file and repeated
// restarts, while workers change their machines and all members change shared rows. After a quiet period, all views
// must be equal, and must contain each worker's machines as they are in its store, which is the model.
//
// A seed determines which events happen and when, but not how goroutines interleave. Therefore, rerun a failed seed
// several times, with -sim.seed.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1, 2, 3, 4}[:simSeeds]
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	} else {
		seeds[simSeeds-1] = rand.Uint64() // a new random seed in each run
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				t.Logf("replay with -run %s -sim.seed=%d", t.Name(), seed)
				s := newSimulation(t, seed)
				for range simSteps {
					s.step()
				}
				s.settle()
			})
		})
	}
}

const simNodes = 6

// simulation is a group under stress.
type simulation struct {
	t     *testing.T
	dice  *rand.Rand
	net   *gossiptest.Memory
	dir   string
	stats map[string]int
	nodes [simNodes]*simNode
}

// simNode is a worker. It consists of its store and, while it runs, its node.
type simNode struct {
	*gossiptest.Node
	path   string
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	machines map[bourse.MachineID]bourse.Machine // the worker's store, which survives crashes and deletions
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, dice: rand.New(rand.NewPCG(seed, seed)), net: gossiptest.NewMemory(seed), dir: t.TempDir(), stats: map[string]int{}}
	s.net.Lose(0.05)
	s.net.Delay(20*time.Millisecond, 15*time.Millisecond)
	for i := range s.nodes {
		s.nodes[i] = &simNode{path: filepath.Join(s.dir, fmt.Sprint("view-", i)), machines: map[bourse.MachineID]bourse.Machine{}}
		s.start(i)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for i := range s.nodes {
			wg.Go(func() { s.nodes[i].end((*gossiptest.Node).Stop) })
		}
		wg.Wait()
	})
	return s
}

// start runs a node on its existing file. Like a worker, the node publishes its machines again
// whenever its view has lost them.
func (s *simulation) start(i int) {
	n := s.nodes[i]
	c := gossiptest.NodeConfig{Number: i + 1, Path: n.path}
	for k := range s.nodes {
		if k != i && s.nodes[k] != nil && s.nodes[k].Node != nil {
			c.Join = append(c.Join, s.nodes[k].Addr())
		}
	}
	node, err := gossiptest.Start(s.net, c)
	if err != nil {
		s.t.Fatalf("start node %d: %v", i, err)
	}
	n.Node = node
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan struct{})
	go func() {
		defer close(n.done)
		for {
			lost := node.View.RowsLost()
			n.republish(ctx)
			select {
			case <-lost:
			case <-ctx.Done():
				return
			}
		}
	}()
}

func (n *simNode) republish(ctx context.Context) {
	n.mu.Lock()
	var rows []wire.Row
	for _, m := range n.machines {
		rows = append(rows, inventory.MachineRow(&m))
	}
	n.mu.Unlock()
	_, _ = n.View.Republish(ctx, []string{wire.TableMachines}, rows) // if the node is stopping, it republishes after its restart
}

func (n *simNode) end(how func(*gossiptest.Node) error) {
	n.cancel()
	_ = how(n.Node) // ignore the errors of a killed node
	<-n.done
}

// step performs one random action.
func (s *simulation) step() {
	i := s.dice.IntN(simNodes)
	n := s.nodes[i]
	switch d := s.dice.IntN(100); {
	case d < 45:
		s.count("machine")
		s.changeMachine(n)
	case d < 70:
		s.count("shared")
		s.changeShared(n)
	case d < 76:
		s.count("crash")
		n.end((*gossiptest.Node).Kill)
		time.Sleep(s.some(8 * time.Second))
		s.start(i)
	case d < 80:
		s.count("wipe")
		n.end((*gossiptest.Node).Kill)
		s.wipe(i)
		s.start(i)
	case d < 83:
		s.count("flap")
		for range 3 {
			n.end((*gossiptest.Node).Kill)
			s.start(i)
			time.Sleep(s.some(time.Second))
		}
	case d < 90:
		s.count("partition")
		mask := s.dice.Uint32()
		s.net.Partition(func(from, to int) bool { return mask>>from&1 != mask>>to&1 })
	case d < 95:
		s.net.Partition(nil)
	default:
		time.Sleep(s.some(2 * time.Minute)) // without ending partitions
	}
	time.Sleep(s.some(500 * time.Millisecond))
}

func (s *simulation) count(what string) { s.stats[what]++ }

func (s *simulation) some(limit time.Duration) time.Duration {
	return time.Duration(s.dice.Int64N(int64(limit)))
}

func (s *simulation) wipe(i int) {
	files, err := filepath.Glob(s.nodes[i].path + "*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			s.t.Fatal(err)
		}
	}
}

// changeMachine creates, changes or destroys one of a worker's machines, first in its store and
// then in its view.
func (s *simulation) changeMachine(n *simNode) {
	id := bourse.MachineID(fmt.Sprintf("%06x%08x", n.Number, s.dice.IntN(4)))
	n.mu.Lock()
	m, ok := n.machines[id]
	row := wire.DeletedRow(wire.TableMachines, string(id))
	if ok && s.dice.IntN(4) == 0 {
		delete(n.machines, id)
	} else {
		now := time.Now().Round(0)
		if !ok {
			m = bourse.Machine{ID: id, App: "web", Worker: n.ID, Region: "gru", CreatedAt: now}
		}
		m.State = []bourse.State{bourse.StateCreated, bourse.StateStarted, bourse.StateStopped}[s.dice.IntN(3)]
		m.UpdatedAt = now
		n.machines[id] = m
		row = inventory.MachineRow(&m)
	}
	n.mu.Unlock()
	_, _ = n.View.Publish(s.t.Context(), row) // if this fails, the row is published after the next start
}

// changeShared creates, changes or deletes a shared row.
func (s *simulation) changeShared(n *simNode) {
	row := release(s.dice.IntN(5))
	switch s.dice.IntN(4) {
	case 0:
		row = wire.DeletedRow(row.Table, row.Key)
	case 1:
		row = inventory.CanceledRow(bourse.NewOrderID(), gossiptest.ID(1+s.dice.IntN(simNodes)))
	case 2:
		row = inventory.AppRow(bourse.App{Name: bourse.AppName(fmt.Sprint("app-", s.dice.IntN(4))), ID: fmt.Sprint(s.dice.Uint32()), CreatedAt: time.Now().Round(0)})
	default:
		row.Columns["created_by"] = fmt.Sprint(s.dice.Uint32())
	}
	_, _ = n.View.Publish(s.t.Context(), row)
}

// settle ends all failures and waits until all views are equal and match the stores.
func (s *simulation) settle() {
	s.net.Partition(nil)
	s.net.Lose(0)
	group := make([]*gossiptest.Node, simNodes)
	for i, n := range s.nodes {
		group[i] = n.Node
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	time.Sleep(time.Second) // virtual time; until nodes that have just started have published their rows
	if err := gossiptest.AwaitEqual(ctx, group); err != nil {
		for _, n := range group {
			s.t.Logf("%s: members %d, %+v", n.ID, len(n.Members.Members()), n.Replicator.State())
		}
		s.t.Fatal(err)
	}
	s.t.Logf("%v; equal after %.1f s", s.stats, time.Since(began).Seconds())
	for _, n := range s.nodes {
		for _, other := range group {
			if d := cmp.Diff(n.truth(), heard(s.t, other, n.ID)); d != "" {
				s.t.Errorf("%s's view of %s's machines (-store +view):\n%s", other.ID, n.ID, d)
			}
		}
	}
}

// truth returns each machine's state and the time of its last change, according to the store.
func (n *simNode) truth() map[bourse.MachineID]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[bourse.MachineID]string{}
	for id, m := range n.machines {
		out[id] = said(m)
	}
	return out
}

func said(m bourse.Machine) string {
	return fmt.Sprint(m.State, " since ", m.UpdatedAt.UnixNano())
}

func heard(t *testing.T, n *gossiptest.Node, owner bourse.WorkerID) map[bourse.MachineID]string {
	t.Helper()
	list, err := view.Query(t.Context(), n.View, inventory.Machines(inventory.Filter{Worker: owner}))
	if err != nil {
		t.Fatal(err)
	}
	out := map[bourse.MachineID]string{}
	for _, m := range list {
		out[m.ID] = said(m.Machine)
	}
	return out
}
