package gossip

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// snapshotTime is how many times longer than another exchange a snapshot may
// take.
const snapshotTime = 10

// restoreAll takes in snapshots of streams, a few side by side. It gives the
// first error, after all have ended.
func (r *Replicator) restoreAll(ctx context.Context, from bourse.Member, streams []view.Stream) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, snapshotsAtOnce)
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

// snapshotsAtOnce is how many snapshots we ask for at a time: fewer than a
// server gives, so that two newcomers do not shut each other out.
const snapshotsAtOnce = 2

// restore takes in another member's snapshot of a stream.
func (r *Replicator) restore(ctx context.Context, from bourse.Member, s view.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime*r.config.Pace.Timeout)
	defer cancel()
	query := url.Values{"site": {string(s.Site)}, "epoch": {strconv.FormatUint(s.Epoch, 10)}}
	resp, err := r.call(ctx, from, r.request(http.MethodGet, pathSnapshot, query))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := r.view.Restore(ctx, s, countReader{resp.Body, &r.count.httpBytesIn}); err != nil {
		return bourse.Errorf(bourse.CodeOf(err), "take in the snapshot of %s from %s: %w", s.Site, from.ID, err)
	}
	r.count.snapshots.Add(1)
	return nil
}

// restoreShared merges another member's shared rows into ours.
func (r *Replicator) restoreShared(ctx context.Context, from bourse.Member) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime*r.config.Pace.Timeout)
	defer cancel()
	resp, err := r.call(ctx, from, r.request(http.MethodGet, pathSnapshot, url.Values{"shared": {"1"}}))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.count.snapshots.Add(1)
	return r.view.RestoreShared(ctx, countReader{resp.Body, &r.count.httpBytesIn})
}
