package replication

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// Bounds on the pause between two attempts to repair the same stream, or the shared rows.
const (
	minRepair = 2 * time.Second
	maxRepair = 10 * time.Minute
)

// maxSharedDiffs is the number of consecutive comparisons with the same member that must find
// different shared rows before these rows are repaired even if the heads differ too. If repairs
// always required equal heads, a busy cluster would never repair the rows, because its heads always
// differ.
const maxSharedDiffs = 5

// maxRepairs is the maximum number of differences whose repairs are tracked.
const maxRepairs = 1024

// Unrepaired describes a difference from other members that could not be repaired so far.
type Unrepaired struct {
	What  string    `json:"what"` // a stream, as "site/epoch", or "shared rows"
	Tries int       `json:"tries"`
	Since time.Time `json:"since"`
	Next  time.Time `json:"next"`
	Error string    `json:"error,omitzero"` // error of the last attempt; empty if the attempt succeeded but the difference remains
}

// repairs tracks attempts to repair differences, so that failed ones are retried at increasing
// intervals.
type repairs struct {
	mu          sync.Mutex
	attempts    map[string]Unrepaired
	sharedDiffs map[bourse.WorkerID]int // number of consecutive comparisons with each member that found different shared rows
}

func (x *repairs) init() {
	x.attempts = map[string]Unrepaired{}
	x.sharedDiffs = map[bourse.WorkerID]int{}
}

// due reports whether to attempt a repair now. If it returns true, it counts the attempt.
func (x *repairs) due(what string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	u, known := x.attempts[what]
	if known && now.Before(u.Next) {
		return false
	}
	if !known {
		if len(x.attempts) >= maxRepairs {
			return false
		}
		u = Unrepaired{What: what, Since: now}
	}
	u.Next = now.Add(min(minRepair<<min(u.Tries, 20), maxRepair))
	u.Tries++
	x.attempts[what] = u
	return true
}

// backingOff reports whether the last attempt to repair a difference is too recent to try again.
func (x *repairs) backingOff(what string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return now.Before(x.attempts[what].Next)
}

func (x *repairs) ended(what string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	u, known := x.attempts[what]
	if !known {
		return
	}
	u.Error = ""
	if err != nil {
		u.Error = bourse.MessageOf(err)
	}
	x.attempts[what] = u
}

// repaired records that a difference no longer exists.
func (x *repairs) repaired(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.attempts, what)
}

// repairedStreams records that no streams differ anymore.
func (x *repairs) repairedStreams() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for what := range x.attempts {
		if what != sharedRows {
			delete(x.attempts, what)
		}
	}
}

// list returns the differences that could not be repaired so far.
func (x *repairs) list() []Unrepaired {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []Unrepaired
	for _, u := range x.attempts {
		if u.Tries > 1 || u.Error != "" {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Unrepaired) int { return cmp.Compare(a.What, b.What) })
	return out
}

// repairStreams repairs streams whose rows differ from another member's even though the positions
// are equal.
func (r *Replicator) repairStreams(ctx context.Context, broken []view.Head) {
	for _, h := range broken {
		what := streamName(h.Stream)
		if !r.repair.due(what, time.Now()) {
			continue
		}
		repaired, err := r.repairStream(ctx, h)
		if ctx.Err() != nil {
			return
		}
		if repaired {
			r.repair.repaired(what)
			continue
		}
		r.repair.ended(what, err)
		if r.quiet.Due("repair " + what) {
			r.config.Log.Warn("repair stream failed: its rows differ between members", slog.String("stream", what), slog.Any("err", err))
		}
	}
}

// repairStream compares this server's hash of a stream with the hash at the site that owns the
// rows. If the hashes differ although the positions are equal, it restores the stream from a
// snapshot. It returns false if the hashes still differ afterward.
func (r *Replicator) repairStream(ctx context.Context, h view.Head) (bool, error) {
	owner, ok := r.member(h.Site)
	if !ok {
		return false, bourse.Errorf(bourse.CodeUnavailable, "%s, which owns the rows, is not among the members", h.Site)
	}
	theirs, err := r.headOf(ctx, owner, h.Stream)
	if err != nil {
		return false, err
	}
	ours, ok := r.headHere(h.Stream)
	if !ok || theirs.Seq != ours.Seq || theirs.Hash == ours.Hash {
		return true, nil // the stream has advanced, or it is the other member that has to repair its rows
	}
	if err := r.restore(ctx, owner, h.Stream); err != nil {
		return false, err
	}
	ours, _ = r.headHere(h.Stream)
	return theirs.Seq != ours.Seq || theirs.Hash == ours.Hash, nil
}

func streamName(s wire.Stream) string { return string(s.Site) + "/" + formatEpoch(s.Epoch) }

func (r *Replicator) member(id bourse.WorkerID) (bourse.Member, bool) {
	others := r.others()
	i := slices.IndexFunc(others, func(m bourse.Member) bool { return m.ID == id })
	if i < 0 {
		return bourse.Member{}, false
	}
	return others[i], true
}

// headOf asks a member for its head of one stream.
func (r *Replicator) headOf(ctx context.Context, m bourse.Member, s wire.Stream) (view.Head, error) {
	request := appendFrame(newEnvelope(r.check), kindFrom, []byte(r.config.Self.ID))
	request = appendFrame(request, kindBucketList, []byte{bucketOf(s)})
	frames, err := r.client.ask(ctx, m, pathDigest, request, maxDigestBody)
	if err != nil {
		return view.Head{}, err
	}
	c := comparison{heads: map[wire.Stream]view.Head{}}
	c.read(frames)
	return c.heads[s], nil
}

func (r *Replicator) headHere(s wire.Stream) (view.Head, bool) {
	for _, h := range r.view.Digest().Heads {
		if h.Stream == s {
			return h, true
		}
	}
	return view.Head{}, false
}

// sharedRows is the key of the shared rows in repairs.attempts.
const sharedRows = "shared rows"

// recordProgress records which streams did not advance during a pull, so that transactions that no
// member has are requested at increasing intervals. It does nothing if the member did not respond.
// It skips a stream if none of the present members may provide a snapshot of it.
func (r *Replicator) recordProgress(with bourse.Member, before map[wire.Stream]uint64, wanted map[wire.Stream]view.Head, err error) {
	if code := bourse.CodeOf(err); err != nil && code != bourse.CodeInvalid && code != bourse.CodeInternal {
		return
	}
	for s, had := range before {
		what := streamName(s)
		if _, err := r.trustedSource(with, s); err != nil {
			continue
		}
		if have := r.view.Head(s); have > had || have >= wanted[s].Seq {
			r.repair.repaired(what)
		} else if r.repair.due(what, time.Now()) {
			r.repair.ended(what, err)
		}
	}
}

// repairShared merges the peer's shared rows into ours if they differ although all heads are equal.
// If the heads also differ, repairShared waits until the shared rows have differed in
// maxSharedDiffs consecutive comparisons.
func (r *Replicator) repairShared(ctx context.Context, c *comparison) {
	heads := c.theirs.heads == c.ours.sums.heads
	if heads {
		r.repair.repairedStreams()
	}
	if !r.repair.sharedDiffer(c.with.ID, c.theirs.shared != c.ours.shared, heads) || !r.repair.due(sharedRows, time.Now()) {
		return
	}
	err := r.restoreShared(ctx, c.with)
	r.repair.ended(sharedRows, err)
	if err != nil && ctx.Err() == nil && r.quiet.Due(sharedRows) {
		r.config.Log.Warn("repair shared rows failed: they differ between members", slog.Any("member", c.with.ID), slog.Any("err", err))
	}
}

// sharedDiffer records whether a comparison with a member has found different shared rows, and
// reports whether they should be repaired.
func (x *repairs) sharedDiffer(with bourse.WorkerID, differ, equalHeads bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !differ {
		delete(x.sharedDiffs, with)
		delete(x.attempts, sharedRows)
		return false
	}
	if len(x.sharedDiffs) >= maxRepairs {
		clear(x.sharedDiffs)
	}
	x.sharedDiffs[with]++
	return equalHeads || x.sharedDiffs[with] >= maxSharedDiffs
}
