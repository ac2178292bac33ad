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

// Replicator replicates the view. It sends this member's changes as rumors in membership packets, and forwards the
// rumors that it receives. To find missed changes, it compares the view with other members' views. It then pulls the
// changes over HTTP. It implements gossip.Rumors.
type Replicator struct {
	config Config
	view   *view.View
	check  uint64 // hash of the cluster's id, as in envelopes
	queue  *rumorQueue
	seen   seenHashes
	wants  pullQueue
	peers  *peers
	repair repairs
	quiet  *quiet.Lines

	count     *counters
	refusals  *refusals
	client    *client
	knowledge knowledge

	synced     chan struct{} // closed once the view has been synchronized for the first time, see Synced
	syncedFile atomic.Uint64 // generation of the view's file at the last synchronization, plus one; 0 if there was none
	syncedOnce sync.Once
	renewals   chan wire.Stream // capacity 1; requests for a new epoch: a stream of ours in which other members are ahead
	limits     limits           // limits on concurrent requests that are being served
}

// New returns a Replicator that sends all transactions that the view publishes from now on. Call it
// before the view's Run. It does not start any goroutines.
func New(c Config) *Replicator {
	c = c.withDefaults()
	r := &Replicator{
		config: c, view: c.View, check: clusterCheck(c.Cluster),
		quiet: &quiet.Lines{}, queue: newRumorQueue(c.Timing, c.Limits), peers: newPeers(), count: &counters{},
		synced: make(chan struct{}), renewals: make(chan wire.Stream, 1), limits: newLimits(c.Limits),
	}
	r.refusals = &refusals{r.count, r.quiet, c.Log}
	r.client = &client{c.Caller, r.check, c.Timing.Timeout, r.peers, r.count, r.refusals}
	r.wants.init()
	r.repair.init()
	r.knowledge.init()
	c.View.OnPublish(func(tx *wire.Transaction, encoded []byte) {
		r.queue.add(tx.Position, slices.Clone(encoded))
	})
	return r
}

// Run keeps the view in sync with the other members until ctx is done, and then returns nil. Call
// it once the membership is Ready, because a Replicator that does not find any other member
// considers itself in sync.
func (r *Replicator) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	here := presence{config: &r.config, peers: r.peers, noted: map[bourse.WorkerID]time.Time{}}
	for _, part := range []func(context.Context){r.compareAll, r.pullWanted, here.watch, r.renewAll} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
	return nil
}

// Synced returns a channel that is closed once the view has been completely compared with another
// member's view and has received all missing data. If there is no other member when the first
// comparison is due, the channel is closed at that time.
func (r *Replicator) Synced() <-chan struct{} { return r.synced }

func (r *Replicator) setSynced() {
	r.syncedFile.Store(r.view.Generation() + 1)
	r.syncedOnce.Do(func() { close(r.synced) })
}

// InSync reports whether the view's current file has been synchronized (see Synced).
func (r *Replicator) InSync() bool { return r.isSynced() }

func (r *Replicator) isSynced() bool {
	return r.syncedFile.Load() == r.view.Generation()+1
}

// others returns all members except this server.
func (r *Replicator) others() []bourse.Member {
	return slices.DeleteFunc(slices.Clone(r.config.Members()), func(m bourse.Member) bool { return m.ID == r.config.Self.ID })
}

// isAhead reports whether p belongs to this server's site but is later than the server's own latest position.
func (r *Replicator) isAhead(p wire.Position) bool {
	self := r.view.Self()
	return p.Site == r.config.Self.ID && (p.Epoch > self.Epoch || p.Epoch == self.Epoch && p.Seq > self.Seq)
}

// requestRenewal requests a new epoch if p is ahead of our own head. p is a position that other members
// claim to have in our own stream.
func (r *Replicator) requestRenewal(p wire.Position) {
	if !r.isAhead(p) {
		return
	}
	select {
	case r.renewals <- p.Stream:
	default: // a request is already pending; its new epoch will be greater than any that other members have seen
	}
}

// renewAll starts a new epoch whenever one is requested, until ctx is done.
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
	ctx, cancel := context.WithTimeout(ctx, r.config.Timing.Timeout)
	defer cancel()
	err := r.view.Renew(ctx, seen)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.config.Log.Warn("new epoch started: other members have newer rows of this server", "seen", seen.Epoch)
	case r.quiet.Due("renew"):
		r.config.Log.Warn("start new epoch failed: other members claim to have newer rows of this server", "seen", seen.Epoch, "err", err)
	}
}
