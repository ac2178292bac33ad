package gossiptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// Network is what members run on: Memory or Loopback.
type Network interface {
	Host(number int) (*Host, error)
}

// Host is a member's place in a network.
type Host struct {
	Transport memberlist.Transport
	Advertise netip.AddrPort
	API       string
	Caller    replication.Caller
	Serve     func(http.Handler)
	Kill      func() // nothing goes in or out any more
	Close     func()
}

// Host makes an end with this number.
func (n *Memory) Host(number int) (*Host, error) {
	e := n.End(number)
	return &Host{Transport: e, API: e.API(), Caller: e.Caller(), Serve: e.Serve, Kill: e.Kill, Close: e.Kill}, nil
}

// NodeConfig is what a Node is started with.
type NodeConfig struct {
	Number    int              // its place in the network, and its tag; from 1
	Path      string           // of the view's file; "": in memory
	Join      []string         // gossip addresses
	Cluster   string           // default "bourse"
	Keys      wire.Keys        // default: a broker's, made for the node, or beside Path
	Role      bourse.Role      // default: a worker
	Now       func() time.Time // the view's clock
	Certified bool             // see gossip.ReplicatorConfig
	Timing    gossip.Timing
	Pace      replication.Pace
	Limits    replication.Limits
	Log       *slog.Logger
}

// Node is a member with a view. Unless its config sets another role, it appears
// to the other members as a worker.
type Node struct {
	ID         bourse.WorkerID
	Number     int
	Members    *gossip.Members
	Replicator *replication.Replicator
	View       *view.View
	Keys       wire.Keys // nil: in a file beside the view's

	host   *Host
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ending atomic.Bool
	ended  chan struct{}
	mu     sync.Mutex
	errs   []error
}

// ID returns the id of the node with a number.
func ID(number int) bourse.WorkerID { return bourse.WorkerID(fmt.Sprintf("w%d", number)) }

// Start runs a node until Stop or Kill.
func Start(network Network, c NodeConfig) (*Node, error) {
	host, err := network.Host(c.Number)
	if err != nil {
		return nil, err
	}
	n := &Node{ID: ID(c.Number), Number: c.Number, host: host, ended: make(chan struct{})}
	if c.Cluster == "" {
		c.Cluster = "bourse"
	}
	if n.Keys = c.Keys; n.Keys == nil && c.Path == "" {
		if n.Keys, err = wire.NewKey(bourse.RoleBroker); err != nil { // that may write everything
			host.Close()
			return nil, err
		}
	}
	n.View, err = view.Open(view.Config{Path: c.Path, Cluster: c.Cluster, Site: n.ID, Keys: n.Keys, Now: c.Now, Log: c.Log})
	if err != nil {
		host.Close()
		return nil, err
	}
	self := bourse.Member{ID: n.ID, Role: cmp.Or(c.Role, bourse.RoleWorker), Region: "gru", Address: host.API, Tag: bourse.WorkerTag(c.Number)}
	n.Replicator = replication.New(replication.Config{
		View: n.View, Cluster: c.Cluster, Self: self, Caller: host.Caller, Log: c.Log, Pace: c.Pace, Limits: c.Limits, Certified: c.Certified,
		Members: func() []bourse.Member { return n.Members.Members() },
		Changed: func() <-chan struct{} { return n.Members.Changed() },
	})
	n.Members, err = gossip.Open(gossip.Config{
		Self: self, Join: c.Join, ClusterID: c.Cluster, Transport: host.Transport, Advertise: host.Advertise,
		Timing: c.Timing, Rumors: n.Replicator, Log: c.Log,
	})
	if err != nil {
		host.Close()
		return nil, errors.Join(err, n.View.Close())
	}
	host.Serve(n.Replicator.Handler())
	n.run()
	return n, nil
}

func (n *Node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	part := func(name string, run func(context.Context) error) {
		n.wg.Go(func() {
			if err := run(ctx); err != nil {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.errs = append(n.errs, fmt.Errorf("%s of %s: %w", name, n.ID, err))
			}
		})
	}
	part("view", n.View.Run)
	part("members", n.Members.Run)
	part("replicator", func(ctx context.Context) error {
		select {
		case <-n.Members.Ready():
		case <-ctx.Done():
			return nil
		}
		return n.Replicator.Run(ctx)
	})
}

// Addr is where others join the node.
func (n *Node) Addr() string { return n.Members.Addr() }

// Stop ends a node in good order and returns what went wrong in its life.
func (n *Node) Stop() error {
	if n.ending.CompareAndSwap(false, true) {
		n.cancel()
		n.wg.Wait()
		n.host.Close()
		n.errs = append(n.errs, n.View.Close())
		close(n.ended)
	}
	<-n.ended // no lock: in a bubble, time goes on while we wait
	return errors.Join(n.errs...)
}

// Kill ends a node without a word to the others.
func (n *Node) Kill() error {
	n.host.Kill()
	return n.Stop()
}
