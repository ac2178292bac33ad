package replication

import (
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// Limits on the requested size of one response to a pull, in bytes. The size is doubled after a
// response that took less than fastChunk, and halved after one that took more than slowChunk.
const (
	minChunk   = 64 << 10
	firstChunk = 256 << 10
	maxChunk   = 4 << 20
	fastChunk  = 250 * time.Millisecond
	slowChunk  = 2 * time.Second
)

const (
	maxPullStreams  = 256 // maximum number of streams in one request
	maxPullRounds   = 512 // maximum number of consecutive requests to one member
	pullConcurrency = 4
)

// pullWanted pulls transactions that were announced but have not arrived as rumors. It returns when
// ctx is done.
func (r *Replicator) pullWanted(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := r.wants.take(time.Now(), r.view.Head)
		if len(due) > 0 {
			r.pullFromSources(ctx, due)
			r.wants.pulled(due, time.Now(), r.view.Head)
			continue
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next), time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wants.wake:
		}
	}
}

// pullFromSources pulls each stream from a member that is likely to have it. It calls several
// members concurrently.
func (r *Replicator) pullFromSources(ctx context.Context, due map[wire.Stream]wantedStream) {
	members := map[bourse.WorkerID]bourse.Member{}
	for _, m := range r.others() {
		members[m.ID] = m
	}
	bySource := map[bourse.WorkerID][]wire.Stream{}
	for s, w := range due {
		if id, ok := r.source(s, w, members); ok {
			bySource[id] = append(bySource[id], s)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, pullConcurrency)
	for id, streams := range bySource {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := r.pull(ctx, members[id], streams); err != nil {
				r.config.Log.Debug("pull of announced streams failed", slog.Any("member", id), slog.Any("err", err))
			}
		})
	}
	wg.Wait()
}

// source chooses the member from which to pull a stream. It prefers the site itself and the members
// that have announced the stream. If none of them can be called, it chooses any member that can. It
// returns false if there is none.
func (r *Replicator) source(s wire.Stream, w wantedStream, members map[bourse.WorkerID]bourse.Member) (bourse.WorkerID, bool) {
	now := time.Now()
	likely := append(slices.Clone(w.from), s.Site)
	rand.Shuffle(len(likely), func(i, j int) { likely[i], likely[j] = likely[j], likely[i] })
	for _, id := range likely {
		if _, ok := members[id]; ok && r.peers.callable(id, now) {
			return id, true
		}
	}
	callable, _ := r.peers.shuffled(slices.Collect(maps.Values(members)), now)
	if len(callable) == 0 {
		return "", false
	}
	return callable[0].ID, true
}

// pull requests, from one member, the transactions that this server is missing in the given
// streams.
func (r *Replicator) pull(ctx context.Context, from bourse.Member, streams []wire.Stream) error {
	chunk := firstChunk
	for part := range slices.Chunk(streams, maxPullStreams) {
		for range maxPullRounds {
			began := time.Now()
			answer, err := r.pullOnce(ctx, from, part, chunk)
			if err != nil {
				return err
			}
			if err := r.restoreAll(ctx, from, answer.snapshots); err != nil {
				return err
			}
			if !answer.more || !answer.progress && len(answer.snapshots) == 0 {
				break
			}
			switch took := time.Since(began); {
			case took < fastChunk:
				chunk = min(2*chunk, maxChunk)
			case took > slowChunk:
				chunk = max(chunk/2, minChunk)
			}
		}
		for _, s := range part {
			r.announceHead(s)
		}
	}
	return nil
}

// announceHead announces this server's head of a stream after a pull, because other members may have missed the same
// transactions. It does nothing until this server is in sync, because the transactions that the server pulls until then
// are already known to most members.
func (r *Replicator) announceHead(s wire.Stream) {
	if seq := r.view.Head(s); seq > 0 && r.isSynced() {
		r.queue.announceHead(wire.Position{Stream: s, Seq: seq})
	}
}

// pulled is the result of one pull request.
type pulled struct {
	progress  bool // whether the response contained new transactions
	more      bool // whether the response was incomplete
	snapshots []wire.Stream
}

func (r *Replicator) pullOnce(ctx context.Context, from bourse.Member, streams []wire.Stream, chunk int) (pulled, error) {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	envelope = appendFrame(envelope, kindBudget, binary.AppendUvarint(nil, uint64(chunk)))
	for _, s := range streams {
		envelope = appendFrame(envelope, kindWant, encodePosition(wire.Position{Stream: s, Seq: r.view.Head(s)}))
	}
	frames, err := r.client.ask(ctx, from, pathPull, envelope, maxPullBody)
	if err != nil {
		return pulled{}, err
	}
	var out pulled
	var encoded [][]byte
	for _, f := range frames {
		switch f.kind {
		case kindTransaction:
			encoded = append(encoded, f.body)
		case kindSnapshot:
			if p, ok := readPosition(f.body); ok && slices.Contains(streams, p.Stream) && p.Seq > r.view.Head(p.Stream) {
				out.snapshots = append(out.snapshots, p.Stream)
			}
		case kindMore:
			out.more = true
		default: // a frame that a later release may add
		}
	}
	if out.progress, err = r.takePulled(from, encoded); err != nil {
		return out, err
	}
	return out, r.view.Flush(ctx)
}

// takePulled applies the transactions in a response and reports whether any of them was new. If a transaction is not
// signed by the site that it names, takePulled returns CodeInvalid, and the member is not called again for some time.
func (r *Replicator) takePulled(from bourse.Member, encoded [][]byte) (progress bool, err error) {
	for _, a := range r.view.ApplyAll(encoded) {
		switch {
		case a.Err != nil:
			r.refusals.add(a.Err, from.ID)
			if bourse.CodeOf(a.Err) == bourse.CodeForbidden {
				r.peers.failed(from.ID, time.Now())
				err = bourse.Errorf(bourse.CodeInvalid, "%s sent a transaction that %s did not sign: %w", from.ID, a.Position.Site, a.Err)
			}
		case a.Outcome == view.FromFuture:
			r.requestRenewal(a.Position)
		case a.Outcome == view.Queued:
			r.count.pulled.Add(1)
			progress = true
		}
	}
	return progress, err
}
