package replication

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// snapshotTime is the time limit for a snapshot, as a multiple of Timing.Timeout.
const snapshotTime = 10

// trusts reports whether a member is trusted to provide a snapshot of a site's stream. Trust is
// necessary, because owned rows are not signed individually. trusts returns true for the site
// itself, and for brokers, which may write any shared row anyway.
func (r *Replicator) trusts(m bourse.Member, site bourse.WorkerID) bool {
	return !r.config.Certified || m.ID == site || m.Role == bourse.RoleBroker
}

// trustedSource returns the member from which to request a snapshot of a stream. holder is a member
// that has the stream. If it is trusted, trustedSource returns it. Otherwise, trustedSource returns
// the stream's site or, if the site is not present, a broker. If no broker is present either, it
// returns CodeNotFound, and the rows will arrive once one of these members is present.
//
// If the site has begun a later epoch, trustedSource always returns holder: the stream's owned rows
// are ignored, and its shared rows are signed individually. The site itself may be missing some of
// these shared rows, because it may have been restored from a backup.
func (r *Replicator) trustedSource(holder bourse.Member, s wire.Stream) (bourse.Member, error) {
	if r.trusts(holder, s.Site) || r.view.Superseded(s) {
		return holder, nil
	}
	if owner, ok := r.member(s.Site); ok {
		return owner, nil
	}
	callable, _ := r.peers.shuffled(r.others(), time.Now())
	for _, m := range callable {
		if m.Role == bourse.RoleBroker {
			return m, nil
		}
	}
	return bourse.Member{}, bourse.Errorf(bourse.CodeNotFound, "neither %s nor a broker is among the members, and no other member is trusted to provide a snapshot of it", s.Site)
}

// restoreAll restores several streams from snapshots, some of them concurrently. After an error, it
// does not start any more restores, waits for those in progress, and returns the error. It skips
// streams for which restore returns CodeNotFound.
func (r *Replicator) restoreAll(ctx context.Context, from bourse.Member, streams []wire.Stream) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, snapshotConcurrency)
	for _, s := range streams {
		slots <- struct{}{}
		mu.Lock()
		stop := first != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			<-slots
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := r.restore(ctx, from, s); err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	return first
}

// snapshotConcurrency is the maximum number of snapshots that are requested at the same time. It is
// less than the number that a server sends at the same time, so that one new member does not block
// another.
const snapshotConcurrency = 2

// restore requests a snapshot of a stream and applies it. holder is a member that claims to have
// the stream.
func (r *Replicator) restore(ctx context.Context, holder bourse.Member, s wire.Stream) error {
	from, err := r.trustedSource(holder, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTime*r.config.Timing.Timeout)
	defer cancel()
	query := url.Values{"site": {string(s.Site)}, "epoch": {strconv.FormatUint(s.Epoch, 10)}}
	resp, err := r.client.call(ctx, from, r.client.request(http.MethodGet, pathSnapshot, query))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := r.view.Restore(ctx, s, countReader{resp.Body, &r.count.httpBytesIn}); err != nil {
		return bourse.Errorf(bourse.CodeOf(err), "restore the snapshot of %s from %s: %w", s.Site, from.ID, err)
	}
	r.count.snapshots.Add(1)
	return nil
}

// restoreShared requests a snapshot of another member's shared rows and merges them into ours.
func (r *Replicator) restoreShared(ctx context.Context, from bourse.Member) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime*r.config.Timing.Timeout)
	defer cancel()
	resp, err := r.client.call(ctx, from, r.client.request(http.MethodGet, pathSnapshot, url.Values{"shared": {"1"}}))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.count.snapshots.Add(1)
	return r.view.RestoreShared(ctx, countReader{resp.Body, &r.count.httpBytesIn})
}
