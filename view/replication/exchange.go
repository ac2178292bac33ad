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

// compareAll compares with a random member again and again: soon after
// differences were found, seldom in quiet times and large groups.
func (r *Replicator) compareAll(ctx context.Context) {
	wait := time.Duration(0)
	for {
		changed := r.config.Changed()
		others := r.others()
		if !r.restBetween(ctx, wait/2+rand.N(wait+1), len(others) == 0, changed) { // so that members do not compare in step
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

// restBetween rests between comparisons, and returns false when ctx has ended.
// A member that is alone and knows nothing is in no hurry before another comes.
func (r *Replicator) restBetween(ctx context.Context, d time.Duration, alone bool, changed <-chan struct{}) bool {
	if d == 0 || !alone || r.knows() {
		return rest(ctx, d)
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

// learnEvery is the time between comparisons while there are members that may
// know the cluster, and we do not.
const learnEvery = 50 * time.Millisecond

// nextWait is the time until the next comparison.
func (r *Replicator) nextWait(last time.Duration, found bool, others int) time.Duration {
	p := r.config.Pace
	if !r.knows() && others > 0 {
		return learnEvery
	}
	if found || !r.isSynced() {
		return p.Fast
	}
	return min(max(3*last/2, p.Fast), p.Slow+time.Duration(others)*10*time.Millisecond)
}

// compareWithSome compares with one member that answers, and reports whether
// something was missing here.
func (r *Replicator) compareWithSome(ctx context.Context, others []bourse.Member) bool {
	callable, _ := r.peers.shuffled(others, time.Now())
	if n := r.knowledge.unknown(callable); n > 0 {
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
		r.config.Log.Debug("compare views", slog.Any("member", m.ID), slog.Any("err", err))
	}
	return false
}

// compareTries is how many members are tried in a row.
const compareTries = 3

// comparison is what is known of another member's view.
type comparison struct {
	with   bourse.Member
	ours   digest
	theirs sums
	heads  map[wire.Stream]view.Head // theirs that differ, or may; Seq 0: it does not have the stream
	all    bool                      // nothing else differs
	fresh  bool                      // the other one does not know the cluster yet
}

// compareWith compares with one member, pulls what we lack, sends it the positions of what
// it lacks, and repairs what is different though it should not be.
func (r *Replicator) compareWith(ctx context.Context, with bourse.Member) (found bool, err error) {
	c, err := r.exchangeHeads(ctx, with)
	if err != nil {
		return false, err
	}
	r.count.compared.Add(1)
	lacking, behind, broken := r.sort(c, time.Now())
	if len(lacking) > 0 {
		before := r.headsOf(lacking)
		err := r.pull(ctx, with, lacking)
		if r.judge(with, before, c.heads, err); err != nil {
			return true, err
		}
	}
	if len(behind) > 0 {
		if err := r.announce(ctx, with, behind); err != nil {
			return false, err
		}
	}
	r.repairStreams(ctx, broken)
	if c.all && !r.isSynced() && c.theirs.shared != r.view.Digest().Shared {
		// Not every shared row is of a stream that is still there.
		if err := r.restoreShared(ctx, with); err != nil {
			return true, err
		}
	}
	r.repairShared(ctx, c)
	if c.all {
		r.setSynced()
	}
	if r.complete(c) {
		r.learned(with.ID, c.fresh)
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

// exchangeHeads does both steps of a comparison.
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
		c.all = true // equal
		return c, nil
	}
	return c, r.exchangeBuckets(ctx, c, sums)
}

// read takes the heads out of an answer. It returns the sums of its buckets, nil
// when there are none: then everything is equal, or it answers step 2.
func (c *comparison) read(frames []frame) *bucketSums {
	var out *bucketSums
	for _, f := range frames {
		switch f.kind {
		case kindNew:
			c.fresh = true
		case kindSums:
			c.theirs, _ = readSums(f.body)
		case kindBuckets:
			out = decodeBuckets(f.body)
		case kindHead:
			if h, ok := readHead(f.body); ok {
				c.heads[h.Stream] = h
			}
		default: // of a later release
		}
	}
	return out
}

// exchangeBuckets asks for the heads of what step 1 did not explain: all of it
// while we are new, else a part; the next comparison finds the rest.
func (r *Replicator) exchangeBuckets(ctx context.Context, c *comparison, theirs *bucketSums) error {
	left := c.ours.unexplained(theirs, c.heads)
	c.all = true
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for len(left) > 0 {
		asked := left[:min(len(left), bucketsOnce)]
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
			c.all = false
			return nil
		}
		if len(c.heads) == known {
			continue // they became equal meanwhile
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

// noteMissing notes which of our streams the other one does not have in the
// buckets that it listed wholly.
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

// sort says what to do about the other one's heads: streams that we lack,
// positions that it lacks, and streams that differ at equal positions.
func (r *Replicator) sort(c *comparison, now time.Time) (lacking []wire.Stream, behind []wire.Position, broken []view.Head) {
	own := r.view.Self().Stream
	for s, h := range c.heads {
		if s == own && h.Seq == 0 && c.ours.heads[s].Seq == 0 {
			continue
		}
		if s.Site == r.config.Self.ID && r.isAhead(h.Position) {
			// What we signed proves it; else only one whose word counts.
			if r.speaksFor(c.with, "") {
				r.ahead(h.Position)
			} else if !r.repair.resting(streamName(s), now) {
				lacking = append(lacking, s)
			}
			continue
		}
		ours := c.ours.heads[s]
		switch {
		case h.Seq > ours.Seq:
			if r.settled(h, now) && h.Seq > r.view.Head(s) && !r.repair.resting(streamName(s), now) {
				lacking = append(lacking, s)
			}
		case h.Seq < ours.Seq:
			if r.settled(ours, now) {
				behind = append(behind, ours.Position)
			}
		case h.Hash != ours.Hash && s != own:
			broken = append(broken, ours)
		}
	}
	return lacking, behind, broken
}

// settled reports whether a head is old enough for all members to have it. A clock
// that is wrong makes it old as well.
func (r *Replicator) settled(h view.Head, now time.Time) bool {
	age := now.Sub(time.Unix(0, h.At))
	return !r.isSynced() || !r.knows() || age > r.config.Pace.Settle || age < -r.config.Pace.Settle
}

// maxAnnounced bounds the positions in one message.
const maxAnnounced = 512

// announce sends a member the positions of what it lacks. It pulls that itself.
func (r *Replicator) announce(ctx context.Context, to bourse.Member, positions []wire.Position) error {
	envelope := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	for _, p := range positions[:min(len(positions), maxAnnounced)] {
		envelope = appendFrame(envelope, kindAnnounce, encodePosition(p))
	}
	_, err := r.client.ask(ctx, to, pathPush, envelope, maxDigestBody)
	return err
}
