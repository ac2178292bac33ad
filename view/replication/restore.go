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

// snapshotTime is the time limit of a snapshot, as a multiple of Timing.Timeout.
const snapshotTime = 10

// trusts reports whether a member is trusted to provide a snapshot of a site's stream, whose
// owned rows are not signed individually. It trusts the site itself and brokers, which may
// write any shared row anyway.
func (r *Replicator) trusts(m bourse.Member, site bourse.WorkerID) bool {
	return !r.config.Certified || m.ID == site || m.Role == bourse.RoleBroker
}

// trustedSource returns the member from which to request a stream's snapshot. If the given member,
// which has the stream, is trusted, trustedSource returns it. Otherwise it returns the site or, if
// the site is not present, a broker. If no broker is present either, it returns CodeNotFound, and
// the rows arrive once one of these members is present.
//
// If the site has begun a later epoch, every member is trusted: owned rows of earlier epochs are
// ignored, and shared rows are signed individually. In that case, the site itself may be missing
// rows, because it may have been restored from a backup.
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
	return bourse.Member{}, bourse.Errorf(bourse.CodeNotFound, "neither %s nor a broker is among the members, and no other member's snapshot of it is trusted", s.Site)
}

// restoreAll restores several streams concurrently from snapshots. It waits until all have
// finished, and returns the first error.
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

// snapshotConcurrency is the maximum number of snapshots that are requested at once. It is less than
// the number that a server serves at once, so that one new member does not block another.
const snapshotConcurrency = 2

// restore applies a snapshot of a stream that the given member claims to have.
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

// restoreShared merges another member's shared rows into ours.
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
