package replication

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// compareAll repeatedly compares this server's view with that of a random member until ctx is done.
// After a comparison that has found missing data, the interval is short. While comparisons find
// none, it grows up to a limit that depends on the size of the cluster.
func (r *Replicator) compareAll(ctx context.Context) {
	wait := time.Duration(0)
	for {
		changed := r.config.Changed()
		others := r.others()
		if !r.restBetween(ctx, wait/2+rand.N(wait+1), len(others) == 0, changed) { // random, so that members don't compare simultaneously
			return
		}
		others = r.others()
		if len(others) == 0 {
			r.setSynced()
		}
		found := r.compareWithSome(ctx, others)
		wait = r.nextWait(wait, found, len(others))
	}
}

// restBetween waits for d, the time until the next comparison. It returns false if ctx is done. If
// there are no other members (alone is true) and this server does not know its cluster yet,
// restBetween returns early when changed is closed.
func (r *Replicator) restBetween(ctx context.Context, d time.Duration, alone bool, changed <-chan struct{}) bool {
	if d == 0 || !alone || r.knowsCluster() {
		return sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
		return ctx.Err() == nil
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// learnInterval is the time between comparisons if there are other members but this server does not
// know its cluster yet.
const learnInterval = 50 * time.Millisecond

// nextWait returns the time until the next comparison. last is the result of the previous call, and found reports
// whether the latest comparison has found data that this server was missing.
func (r *Replicator) nextWait(last time.Duration, found bool, others int) time.Duration {
	p := r.config.Timing
	if !r.knowsCluster() && others > 0 {
		return learnInterval
	}
	if found || !r.isSynced() {
		return p.MinInterval
	}
	return min(max(3*last/2, p.MinInterval), p.MaxInterval+time.Duration(others)*10*time.Millisecond)
}

// compareWithSome compares this server's view with one member's. If that fails, it tries other
// members, at most compareTries in total. It reports whether this server was missing data.
func (r *Replicator) compareWithSome(ctx context.Context, others []bourse.Member) bool {
	callable, _ := r.peers.shuffled(others, time.Now())
	if n := r.knowledge.uncompared(callable); n > 0 {
		callable = callable[:n]
	}
	for _, m := range callable[:min(len(callable), compareTries)] {
		found, err := r.compareWith(ctx, m)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return found
		}
		r.config.Log.Debug("comparison with member failed", slog.Any("member", m.ID), slog.Any("err", err))
	}
	return false
}

// compareTries is the maximum number of members that compareWithSome tries.
const compareTries = 3

// comparison contains the state of a comparison with another member.
type comparison struct {
	with       bourse.Member
	ours       digest
	theirs     sums
	heads      map[wire.Stream]view.Head // the peer's heads that may differ from ours; if Seq is 0, the peer does not have the stream
	complete   bool                      // whether heads contains all differing heads
	uninformed bool                      // whether the peer does not know its cluster yet
}

// compareWith compares this server's view with one member's. It pulls the transactions that this server is missing,
// announces those that the member is missing, and repairs streams that differ even though their positions are equal. It
// reports whether this server was missing transactions.
func (r *Replicator) compareWith(ctx context.Context, with bourse.Member) (found bool, err error) {
	c, err := r.exchangeHeads(ctx, with)
	if err != nil {
		return false, err
	}
	r.count.compared.Add(1)
	lacking, behind, broken := r.classify(c, time.Now())
	if len(lacking) > 0 {
		before := r.headsOf(lacking)
		err := r.pull(ctx, with, lacking)
		if r.recordProgress(with, before, c.heads, err); err != nil {
			return true, err
		}
	}
	if len(behind) > 0 {
		if err := r.announce(ctx, with, behind); err != nil {
			return false, err
		}
	}
	r.repairStreams(ctx, broken)
	if c.complete && !r.isSynced() && c.theirs.shared != r.view.Digest().Shared {
		// A pull does not transfer shared rows that were written in streams that no longer exist.
		if err := r.restoreShared(ctx, with); err != nil {
			return true, err
		}
	}
	r.repairShared(ctx, c)
	if c.complete {
		r.setSynced()
	}
	if r.complete(c) {
		r.noteCompared(with.ID, c.uninformed)
	}
	return len(lacking) > 0, nil
}

func (r *Replicator) headsOf(streams []wire.Stream) map[wire.Stream]uint64 {
	out := make(map[wire.Stream]uint64, len(streams))
	for _, s := range streams {
		out[s] = r.view.Head(s)
	}
	return out
}

// exchangeHeads performs both steps of a comparison and returns its state.
func (r *Replicator) exchangeHeads(ctx context.Context, with bourse.Member) (*comparison, error) {
	d := r.view.Digest()
	c := &comparison{with: with, ours: digestOf(d), heads: map[wire.Stream]view.Head{}}
	request := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	request = firstRequest(request, d, c.ours.sums)
	frames, err := r.client.ask(ctx, with, pathDigest, request, maxDigestBody)
	if err != nil {
		return nil, err
	}
	sums := c.read(frames)
	if sums == nil {
		c.complete = true // the views are equal
		return c, nil
	}
	return c, r.exchangeBuckets(ctx, c, sums)
}

// read adds the heads in a response to c. It returns the checksums of the peer's buckets, or nil if the response does
// not contain them: in step 1, this means that the views are equal; in step 2, it is always the case.
func (c *comparison) read(frames []frame) *bucketSums {
	var out *bucketSums
	for _, f := range frames {
		switch f.kind {
		case kindNew:
			c.uninformed = true
		case kindSums:
			c.theirs, _ = readSums(f.body)
		case kindBuckets:
			out = decodeBuckets(f.body)
		case kindHead:
			if h, ok := readHead(f.body); ok {
				c.heads[h.Stream] = h
			}
		default: // a frame that a later release may add
		}
	}
	return out
}

// exchangeBuckets performs step 2. Until this server is in sync, it requests the heads in all
// buckets whose differences step 1 has not explained. Once the server is in sync, it requests only
// some of them, because later comparisons find the rest.
func (r *Replicator) exchangeBuckets(ctx context.Context, c *comparison, theirs *bucketSums) error {
	left := c.ours.differingBuckets(theirs, c.heads)
	c.complete = true
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for len(left) > 0 {
		asked := left[:min(len(left), maxBuckets)]
		left = left[len(asked):]
		request := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
		request = appendFrame(request, kindBucketList, asked)
		frames, err := r.client.ask(ctx, c.with, pathDigest, request, maxDigestBody)
		if err != nil {
			return err
		}
		known := len(c.heads)
		c.read(frames)
		cut := hasFrame(frames, kindMore)
		if !cut {
			c.noteMissing(asked)
		}
		if cut || r.isSynced() && len(left) > 0 {
			c.complete = false
			return nil
		}
		if len(c.heads) == known {
			continue // the buckets have become equal in the meantime
		}
	}
	return nil
}

func hasFrame(frames []frame, k kind) bool {
	for _, f := range frames {
		if f.kind == k {
			return true
		}
	}
	return false
}

// noteMissing records which of our streams the peer does not have. The peer has listed all its
// heads in the given buckets, so it does not have any other streams in these buckets.
func (c *comparison) noteMissing(listed []byte) {
	in := [buckets]bool{}
	for _, b := range listed {
		in[b] = true
	}
	for s := range c.ours.heads {
		if _, ok := c.heads[s]; !ok && in[bucketOf(s)] {
			c.heads[s] = view.Head{Position: wire.Position{Stream: s}}
		}
	}
}

// classify sorts the differences into three groups: the streams in which this server is missing transactions (lacking),
// this server's positions in the streams in which the peer is missing transactions (behind), and the streams whose
// contents differ even though their positions are equal (broken).
func (r *Replicator) classify(c *comparison, now time.Time) (lacking []wire.Stream, behind []wire.Position, broken []view.Head) {
	own := r.view.Self().Stream
	for s, h := range c.heads {
		if s == own && h.Seq == 0 && c.ours.heads[s].Seq == 0 {
			continue
		}
		if s.Site == r.config.Self.ID && r.isAhead(h.Position) {
			// The member claims to be ahead in our own stream. We believe this immediately only if we trust the member.
			// Otherwise, it must prove the claim: we pull one of these transactions and check that it has our
			// signature.
			if r.trusts(c.with, "") {
				r.requestRenewal(h.Position)
			} else if !r.repair.backingOff(streamName(s), now) {
				lacking = append(lacking, s)
			}
			continue
		}
		ours := c.ours.heads[s]
		switch {
		case h.Seq > ours.Seq:
			if r.isOldEnough(h, now) && h.Seq > r.view.Head(s) && !r.repair.backingOff(streamName(s), now) {
				lacking = append(lacking, s)
			}
		case h.Seq < ours.Seq:
			if r.isOldEnough(ours, now) {
				behind = append(behind, ours.Position)
			}
		case h.Hash != ours.Hash && s != own:
			broken = append(broken, ours)
		}
	}
	return lacking, behind, broken
}

// isOldEnough reports whether a head is old enough that it should have reached all members. A head
// whose time is in the future counts as old. Until this server is in sync and knows its cluster, all
// heads count as old.
func (r *Replicator) isOldEnough(h view.Head, now time.Time) bool {
	age := now.Sub(time.Unix(0, h.At))
	return !r.isSynced() || !r.knowsCluster() || age > r.config.Timing.MinAge || age < -r.config.Timing.MinAge
}

// maxAnnounced is the maximum number of positions in one message.
const maxAnnounced = 512

// announce sends a member the positions that it is missing, so that it pulls the transactions.
func (r *Replicator) announce(ctx context.Context, to bourse.Member, positions []wire.Position) error {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	for _, p := range positions[:min(len(positions), maxAnnounced)] {
		envelope = appendFrame(envelope, kindAnnounce, encodePosition(p))
	}
	_, err := r.client.ask(ctx, to, pathPush, envelope, maxDigestBody)
	return err
}
