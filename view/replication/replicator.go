package replication

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// Replicator spreads the view: what this member changes goes with the
// gossip of the membership, what it receives is passed on, and what it missed is
// found by comparing with others and pulled over HTTP. It is the Rumours of
// its Members.
type Replicator struct {
	config Config
	view   *view.View
	check  uint64 // of the cluster
	queue  *rumourQueue
	seen   recent
	wants  wants
	peers  *peers
	repair repairs
	quiet  *quiet.Lines

	count     *counters
	refusals  *refusals
	client    *client
	knowledge knowledge

	synced     chan struct{} // closed once we have compared all with another member
	syncedFile atomic.Uint64 // the generation of the view's file then, and one
	syncedOnce sync.Once
	renewals   chan wire.Stream // holds one: what others know of ourselves and we do not
	pressed    atomic.Bool      // the view's queue is half full
	limits     limits           // of what is served
}

// New makes one, which receives what the view publishes: call
// it before the view's Run. It starts nothing.
func New(c Config) *Replicator {
	c = c.withDefaults()
	r := &Replicator{
		config: c, view: c.View, check: clusterCheck(c.Cluster),
		quiet: &quiet.Lines{}, queue: newRumourQueue(c.Pace, c.Limits), peers: newPeers(), count: &counters{},
		synced: make(chan struct{}), renewals: make(chan wire.Stream, 1), limits: newLimits(c.Limits),
	}
	r.refusals = &refusals{r.count, r.quiet, c.Log}
	r.client = &client{c.Caller, r.check, c.Pace.Timeout, r.peers, r.count, r.refusals}
	r.wants.init()
	r.repair.init()
	r.knowledge.init()
	c.View.OnPublish(func(tx *wire.Transaction, encoded []byte) {
		r.queue.add(tx.Position, slices.Clone(encoded))
	})
	return r
}

// Run compares, pulls and repairs until ctx ends. Begin it once the membership
// is Ready: a member that has met no other believes that it knows all.
func (r *Replicator) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	here := presence{config: &r.config, peers: r.peers, noted: map[bourse.WorkerID]time.Time{}}
	for _, part := range []func(context.Context){r.compareAll, r.pullWanted, here.watch, r.renewAll, r.watchPressure} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
	return nil
}

// Synced is closed once all was compared with some other member and what was
// missing is there, or when there was no one to compare with.
func (r *Replicator) Synced() <-chan struct{} { return r.synced }

func (r *Replicator) setSynced() {
	r.syncedFile.Store(r.view.Generation() + 1)
	r.syncedOnce.Do(func() { close(r.synced) })
}

// InSync reports whether that is so of the view's present file.
func (r *Replicator) InSync() bool { return r.isSynced() }

func (r *Replicator) isSynced() bool {
	return r.syncedFile.Load() == r.view.Generation()+1
}

// others returns the members without ourselves.
func (r *Replicator) others() []bourse.Member {
	return slices.DeleteFunc(slices.Clone(r.config.Members()), func(m bourse.Member) bool { return m.ID == r.config.Self.ID })
}

// isAhead reports whether a position is one of our own that we have not come to.
func (r *Replicator) isAhead(p wire.Position) bool {
	self := r.view.Self()
	return p.Site == r.config.Self.ID && (p.Epoch > self.Epoch || p.Epoch == self.Epoch && p.Seq > self.Seq)
}

// ahead takes note that others know more of our own stream than we do.
func (r *Replicator) ahead(p wire.Position) {
	if !r.isAhead(p) {
		return
	}
	select {
	case r.renewals <- p.Stream:
	default: // one is enough: the new epoch is greater than ours and than that one's
	}
}

// renewAll begins a new epoch when the others know more of ours than we do.
func (r *Replicator) renewAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case seen := <-r.renewals:
			r.renew(ctx, seen)
		}
	}
}

func (r *Replicator) renew(ctx context.Context, seen wire.Stream) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Pace.Timeout)
	defer cancel()
	err := r.view.Renew(ctx, seen)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.config.Log.Warn("others know more of our view's rows than we do: a new epoch begins", "seen", seen.Epoch)
	case r.quiet.Due("renew"):
		r.config.Log.Warn("others claim to know more of our view's rows than we do", "seen", seen.Epoch, "err", err)
	}
}

// watchPressure checks that the view keeps up with what it receives.
func (r *Replicator) watchPressure(ctx context.Context) {
	for tick := time.NewTicker(pressureEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			r.pressed.Store(r.view.Health().Queue.Bytes > view.DefaultQueueBytes/2)
		}
	}
}

// pressureEvery is how often the view's queue is looked at.
const pressureEvery = 2 * time.Second
