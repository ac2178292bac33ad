package way

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
)

// renewAtOnce is how many workers are told at the same time.
const renewAtOnce = 64

// Run tells workers that machines are in use, for as long as they are, until ctx
// ends. Then all ways end, with their tunnels. It is called once.
func (w *Ways) Run(ctx context.Context) error {
	tick := time.NewTicker(w.TTL / renewals)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.close()
			return nil
		case <-tick.C:
			w.renewAll(ctx)
		}
	}
}

var errClosing = bourse.Errorf(bourse.CodeUnavailable, "the proxy is ending")

func (w *Ways) close() {
	w.mu.Lock()
	w.closed = true
	for _, a := range w.asking {
		a.cancel()
	}
	ways := w.ways
	w.ways = nil
	w.mu.Unlock()
	for _, way := range ways {
		way.end(errClosing, true)
	}
	w.work.Wait()
}

// renewAll renews what is in use, and forgets what has not been for long.
func (w *Ways) renewAll(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(renewAtOnce)
	for _, way := range w.inUse(time.Now()) {
		group.Go(func() error {
			w.renew(ctx, way)
			return nil
		})
	}
	_ = group.Wait() // there are no errors
}

// inUse returns the ways that were used since the last time, or are.
func (w *Ways) inUse(now time.Time) []*Way {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Way
	for at, way := range w.ways {
		moved := way.moved.Swap(false)
		way.mu.Lock()
		ended, busy := way.err != nil, way.requests > 0
		old := !busy && len(way.conns) == 0 && now.Sub(way.used) > forgetAfter
		way.mu.Unlock()
		switch {
		case ended:
			delete(w.ways, at)
		case busy || moved:
			out = append(out, way)
		case old:
			delete(w.ways, at)
			way.end(bourse.Errorf(bourse.CodeUnavailable, "machine %s was not used for long", at.machine), false)
		}
	}
	return out
}

// renew tells the machine's worker that it is in use. A worker that does not
// answer for as long as that counts has lost its tunnels.
func (w *Ways) renew(ctx context.Context, way *Way) {
	way.mu.Lock()
	to, requests, until := way.to, way.requests, way.until
	way.mu.Unlock()
	if now, ok := w.Directory.ByTag(way.at.machine.Tag()); ok && now.ID == to.ID {
		to = now // its address may be another
	}
	ctx, cancel := context.WithTimeout(ctx, w.TTL/renewals)
	defer cancel()
	reply, err := w.call(ctx, way.at, to, false, 0, requests)
	switch code := bourse.CodeOf(err); {
	case err == nil && way.renew(to, &reply, w.ttl(&reply), time.Now()):
	case err == nil:
		way.end(bourse.Errorf(bourse.CodeUnavailable, "machine %s is %s, or was started again", way.at.machine, reply.State), false)
		if reply.State == bourse.StateSuspended && requests > 0 && way.starts.Load() {
			w.work.Go(func() { w.resume(to.ID, way.at) })
		}
	case code == bourse.CodeNotFound || code == bourse.CodeFailedPrecondition:
		way.end(err, false)
	case !time.Now().Before(until):
		w.Log.Warn("worker does not answer: its tunnels are closed", "worker", to.ID, "machine", way.at.machine, "err", err)
		way.end(err, true)
	default:
		way.moved.Store(true) // again
	}
}

// resume has a machine go on that was suspended with requests in progress: to them it is
// silent, and no connection breaks.
func (w *Ways) resume(worker bourse.WorkerID, at place) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Wait+reserve)
	defer cancel()
	if _, err := w.Use(ctx, worker, at.machine, at.port, true); err != nil {
		w.Log.Warn("machine was suspended with requests in progress, and cannot be resumed", "machine", at.machine, "err", err)
	}
}
