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

// Between repairs of the same thing that do not help.
const (
	minRepair = 2 * time.Second
	maxRepair = 10 * time.Minute
)

// sharedStrikes is how many comparisons in a row must find other shared rows
// while heads differ as well: in a busy cluster they always do.
const sharedStrikes = 5

// maxRepairs bounds what is remembered of repairs.
const maxRepairs = 1024

// Unrepaired is something that differs from the other members' and that
// repairs have not made equal.
type Unrepaired struct {
	What  string    `json:"what"` // a stream, as site/epoch, or "shared rows"
	Tries int       `json:"tries"`
	Since time.Time `json:"since"`
	Next  time.Time `json:"next"`
	Error string    `json:"error,omitzero"` // of the last try; empty: it worked and did not help
}

// repairs remembers what was repaired, so that what cannot be is not tried all
// the time.
type repairs struct {
	mu      sync.Mutex
	tried   map[string]Unrepaired
	strikes int // comparisons in a row with other shared rows
}

func (x *repairs) init() { x.tried = map[string]Unrepaired{} }

// due reports whether something may be repaired now, and counts it as a try.
func (x *repairs) due(what string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	u, known := x.tried[what]
	if known && now.Before(u.Next) {
		return false
	}
	if !known {
		if len(x.tried) >= maxRepairs {
			return false
		}
		u = Unrepaired{What: what, Since: now}
	}
	u.Next = now.Add(min(minRepair<<min(u.Tries, 20), maxRepair))
	u.Tries++
	x.tried[what] = u
	return true
}

// resting reports whether something was tried in vain lately.
func (x *repairs) resting(what string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return now.Before(x.tried[what].Next)
}

func (x *repairs) ended(what string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	u, known := x.tried[what]
	if !known {
		return
	}
	u.Error = ""
	if err != nil {
		u.Error = bourse.MessageOf(err)
	}
	x.tried[what] = u
}

// repaired forgets what is equal again.
func (x *repairs) repaired(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.tried, what)
}

// repairedStreams forgets all streams: everything is equal.
func (x *repairs) repairedStreams() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for what := range x.tried {
		if what != sharedRows {
			delete(x.tried, what)
		}
	}
}

// list returns what repairs did not make equal: tried more than once.
func (x *repairs) list() []Unrepaired {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []Unrepaired
	for _, u := range x.tried {
		if u.Tries > 1 || u.Error != "" {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Unrepaired) int { return cmp.Compare(a.What, b.What) })
	return out
}

// repairStreams repairs streams of which we have other rows than another member
// has at the same position.
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
			r.config.Log.Warn("a stream's rows differ between members", slog.String("stream", what), slog.Any("err", err))
		}
	}
}

// repairStream asks the site itself, whose rows they are, and takes its
// snapshot when ours is the wrong one. It reports whether ours is right.
func (r *Replicator) repairStream(ctx context.Context, h view.Head) (bool, error) {
	owner, ok := r.member(h.Site)
	if !ok {
		return false, bourse.Errorf(bourse.CodeUnavailable, "%s, whose rows they are, is not here", h.Site)
	}
	theirs, err := r.headOf(ctx, owner, h.Stream)
	if err != nil {
		return false, err
	}
	ours, ok := r.headHere(h.Stream)
	if !ok || theirs.Seq != ours.Seq || theirs.Hash == ours.Hash {
		return true, nil // it has moved on, or the other one is wrong and repairs itself
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

// sharedRows is what repairs of shared rows are called.
const sharedRows = "shared rows"

// judge notes which streams did not come further by a pull, so that what no one
// has is not asked for all the time. That a member did not answer is no fault of
// a stream, nor that no member is here whose snapshot of it is trusted.
func (r *Replicator) judge(with bourse.Member, before map[wire.Stream]uint64, wanted map[wire.Stream]view.Head, err error) {
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

// repairShared merges the other one's shared rows into ours when they differ
// and no stream explains it.
func (r *Replicator) repairShared(ctx context.Context, c *comparison) {
	heads := c.theirs.heads == c.ours.sums.heads
	if heads {
		r.repair.repairedStreams()
	}
	if !r.repair.sharedDiffer(c.theirs.shared != c.ours.shared, heads) || !r.repair.due(sharedRows, time.Now()) {
		return
	}
	err := r.restoreShared(ctx, c.with)
	r.repair.ended(sharedRows, err)
	if err != nil && ctx.Err() == nil && r.quiet.Due(sharedRows) {
		r.config.Log.Warn("shared rows differ between members", slog.Any("member", c.with.ID), slog.Any("err", err))
	}
}

// sharedDiffer counts comparisons with other shared rows, and reports whether it
// is time to do something.
func (x *repairs) sharedDiffer(differ, equalHeads bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !differ {
		x.strikes = 0
		delete(x.tried, sharedRows)
		return false
	}
	x.strikes++
	return equalHeads || x.strikes >= sharedStrikes
}
