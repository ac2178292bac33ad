package gossiptest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/replication"
)

// given is a group whose members know one another from the start. This does not affect the measurements, and saves the
// minutes of processor time that a thousand members need to find one another through memberlist. The members send
// rumors as package gossip does: in separate packets and in memberlist's packets, except in its pings.
type given struct {
	nodes   []*gossiptest.Node
	members []bourse.Member
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	errs    chan error
}

// The values that package gossip uses.
const (
	gossipEvery = 100 * time.Millisecond
	gossipNodes = 10 + 5
	packetRoom  = 1400 - 2 - len("bourse/bourse") - 2 // without the headers of a compound message and of the label
	messageRoom = 3                                   // size of each message's headers
)

func startGiven(network *gossiptest.Memory, n int, seed uint64) (*given, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &given{cancel: cancel, errs: make(chan error, 3*n)}
	var ends []*gossiptest.End
	for i := range n {
		end := network.End(i + 1)
		ends = append(ends, end)
		g.members = append(g.members, bourse.Member{
			ID: gossiptest.ID(i + 1), Role: bourse.RoleWorker, Region: "gru", Address: end.API(), Tag: bourse.WorkerTag(i + 1),
		})
	}
	for i, end := range ends {
		node, err := g.open(end, g.members[i])
		if err != nil {
			return nil, errors.Join(err, g.stop())
		}
		node.Number = i + 1
		g.nodes = append(g.nodes, node)
	}
	for i, node := range g.nodes {
		g.part(func() error { return node.View.Run(ctx) })
		g.part(func() error { return node.Replicator.Run(ctx) })
		g.part(func() error { hear(ctx, ends[i], node.Replicator); return nil })
		g.part(func() error { return tell(ctx, ends, i, node.Replicator, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return g, nil
}

func (g *given) open(end *gossiptest.End, self bourse.Member) (*gossiptest.Node, error) {
	v, err := view.Open(view.Config{Cluster: "bourse", Site: self.ID})
	if err != nil {
		return nil, err
	}
	r := replication.New(replication.Config{
		View: v, Self: self, Caller: end.Caller(), Members: func() []bourse.Member { return g.members },
	})
	end.Serve(r.Handler())
	return &gossiptest.Node{ID: self.ID, View: v, Replicator: r}, nil
}

func (g *given) part(run func() error) {
	g.wg.Go(func() {
		if err := run(); err != nil {
			g.errs <- err
		}
	})
}

// stop stops the group and returns the members' errors.
func (g *given) stop() error {
	g.cancel()
	g.wg.Wait()
	close(g.errs)
	var all error
	for err := range g.errs {
		all = errors.Join(all, err)
	}
	for _, n := range g.nodes {
		all = errors.Join(all, n.View.Close())
	}
	return all
}

// tell sends a member's rumors to some random other members, repeatedly.
func tell(ctx context.Context, ends []*gossiptest.End, self int, r *replication.Replicator, dice *rand.Rand) error {
	wait := time.Duration(dice.Int64N(int64(gossipEvery)))
	for pause(ctx, wait) {
		for range gossipNodes {
			to := dice.IntN(len(ends))
			if to == self {
				continue
			}
			for _, message := range r.Next(messageRoom, packetRoom) {
				if _, err := ends[self].WriteTo(message, ends[to].Addr()); err != nil {
					return err
				}
			}
		}
		wait = gossipEvery
	}
	return nil
}

// hear passes the packets that a member receives to its replicator.
func hear(ctx context.Context, from memberlist.Transport, r *replication.Replicator) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-from.PacketCh():
			r.Receive(p.Buf)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
