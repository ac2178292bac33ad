package replication

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// copyHedge is how long AwaitCopies waits for a member before it also tries another one. Without
// it, AwaitCopies would wait until the call times out if a network failure has just made the member
// unreachable.
const copyHedge = 200 * time.Millisecond

// AwaitCopies sends this server's transactions, up to position p, to n random members, or to all
// other members if there are fewer than n. It waits until that many members have stored the
// transactions, which then survive the loss of this server. If too many calls fail or ctx is done
// first, AwaitCopies returns CodeUnavailable, but the transactions still spread as rumors.
func (r *Replicator) AwaitCopies(ctx context.Context, p wire.Position, n int) error {
	callable, resting := r.peers.shuffled(r.others(), time.Now())
	members := append(callable, resting...)
	n = min(n, len(members))
	if n <= 0 || p.Seq == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ends := make(chan bool, len(members))
	put := func(m bourse.Member) { wg.Go(func() { ends <- r.sendTo(ctx, m, p) == nil }) }
	for _, m := range members[:n] {
		put(m)
	}
	have, next, under := 0, n, n
	another := func() {
		if next < len(members) && ctx.Err() == nil {
			put(members[next])
			next++
			under++
		}
	}
	hedge := time.NewTicker(copyHedge)
	defer hedge.Stop()
	for have < n && under > 0 {
		select {
		case ok := <-ends:
			under--
			if ok {
				have++
			} else {
				another()
			}
		case <-hedge.C:
			another()
		case <-ctx.Done():
			return bourse.Errorf(bourse.CodeUnavailable, "%d of %d members have the change: %w", have, n, ctx.Err())
		}
	}
	if have < n {
		return bourse.Errorf(bourse.CodeUnavailable, "%d of %d members have the change", have, n)
	}
	return nil
}

// sendTo sends this server's transactions, up to position p, to one member, and waits until the
// member has stored them. It first sends only the latest transactions. If the member is also
// missing earlier transactions, sendTo then sends those.
func (r *Replicator) sendTo(ctx context.Context, to bourse.Member, p wire.Position) error {
	after := wire.Position{Stream: p.Stream, Seq: p.Seq - 1}
	for range 2 {
		encoded, ok := r.view.Since(after, maxChunk)
		if !ok {
			return bourse.Errorf(bourse.CodeUnavailable, "%s is too far behind", to.ID)
		}
		envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
		for _, tx := range encoded {
			envelope = appendFrame(envelope, kindTransaction, tx)
		}
		frames, err := r.client.ask(ctx, to, pathPush, envelope, maxDigestBody)
		if err != nil {
			return err
		}
		for _, f := range frames {
			if q, ok := readPosition(f.body); f.kind == kindAnnounce && ok && q.Stream == p.Stream {
				if q.Seq >= p.Seq {
					return nil
				}
				after.Seq = q.Seq
			}
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "%s did not apply the change", to.ID)
}
