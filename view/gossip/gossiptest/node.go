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

// Network connects nodes. Memory and Loopback implement it.
type Network interface {
	Host(number int) (*Host, error)
}

// Host gives one member access to a Network.
type Host struct {
	Transport memberlist.Transport
	Advertise netip.AddrPort
	API       string
	Caller    replication.Caller
	Serve     func(http.Handler)
	Kill      func() // stops all traffic in both directions
	Close     func()
}

// Host creates an end with this number and returns the Host that gives access to it.
func (n *Memory) Host(number int) (*Host, error) {
	e := n.End(number)
	return &Host{Transport: e, API: e.API(), Caller: e.Caller(), Serve: e.Serve, Kill: e.Kill, Close: e.Kill}, nil
}

// NodeConfig configures a Node.
type NodeConfig struct {
	Number    int              // number in the network, from 1; also the worker's tag
	Path      string           // path of the view's file; "": in memory
	Join      []string         // gossip addresses of other nodes
	Cluster   string           // default "bourse"
	Keys      wire.Keys        // default: a new broker's key, or a key in a file next to Path
	Role      bourse.Role      // default: worker
	Now       func() time.Time // the view's clock
	Certified bool             // see replication.Config
	Timing    gossip.Timing
	Pace      replication.Timing
	Limits    replication.Limits
	Log       *slog.Logger
}

// Node is a member with a view. To the other members, it is a worker, unless its config sets
// another role.
type Node struct {
	ID         bourse.WorkerID
	Number     int
	Members    *gossip.Members
	Replicator *replication.Replicator
	View       *view.View
	Keys       wire.Keys // nil if they are in a file next to the view's

	host   *Host
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ending atomic.Bool
	ended  chan struct{}
	mu     sync.Mutex
	errs   []error
}

// ID returns the id of the node with this number.
func ID(number int) bourse.WorkerID { return bourse.WorkerID(fmt.Sprintf("w%d", number)) }

// Start starts a node, which runs until Stop or Kill is called.
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
		if n.Keys, err = wire.NewKey(bourse.RoleBroker); err != nil { // a broker may write all rows
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
		View: n.View, Cluster: c.Cluster, Self: self, Caller: host.Caller, Log: c.Log, Timing: c.Pace, Limits: c.Limits, Certified: c.Certified,
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

// Addr returns the node's gossip address, which other nodes can use in NodeConfig.Join.
func (n *Node) Addr() string { return n.Members.Addr() }

// Stop stops the node cleanly and returns the errors that occurred while it was running.
func (n *Node) Stop() error {
	if n.ending.CompareAndSwap(false, true) {
		n.cancel()
		n.wg.Wait()
		n.host.Close()
		n.errs = append(n.errs, n.View.Close())
		close(n.ended)
	}
	<-n.ended // do not wait for a mutex here, because virtual time stops while a goroutine of the bubble waits for one
	return errors.Join(n.errs...)
}

// Kill stops the node without notifying the other nodes.
func (n *Node) Kill() error {
	n.host.Kill()
	return n.Stop()
}
