package market

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// quoteCache caches the last quotes of workers, for a moment, so that an order
// like an earlier one can be claimed without asking first. It is a hint: the worker
// checks its ledger in the claim, and when it refuses, or anything else is in
// doubt, the workers are asked as usual. A cached refusal only leaves
// its worker out; no order is refused from the cache.
type quoteCache struct {
	within  time.Duration // how long a quote is cached; negative: not at all
	silence time.Duration // a worker that leaves a claim unanswered so long is asked first
	most    int           // words

	mu      sync.Mutex
	workers map[bourse.WorkerID]*cachedWorker
	count   int // entries of words in all workers
}

// cachedWorker is the last quotes of one worker, corrected by the claims made there since.
type cachedWorker struct {
	member   bourse.Member         // as it was asked
	facts    bourse.Quote          // of any order: region, load, accounts; the accounts are replaced, never changed
	machines map[bourse.AppRef]int // living ones of an app; nothing of tasks
	words    map[shape]said
	claims   int       // not answered yet
	heard    time.Time // last; or when the first of claims was made, if that is later
}

// said is the last quote of a worker for one shape.
type said struct {
	asked   time.Time
	no      bool
	takes   bourse.Amounts
	missing int64
}

// shape is all that a worker looks at in an order for a new machine, but for
// its regions. The zero shape is that of orders which are like no other.
type shape struct {
	app   bourse.AppRef
	image string
	guest bourse.Guest
	needs string // the requirements, written out
	task  string // that a machine is warm for
}

// Bounds of the cache, whatever orders and workers send.
const (
	maxCached = 4096 // words
	maxNeeds  = 512  // bytes of a shape's requirements
	maxLines  = 64   // of accounts and takes
)

func shapeOf(o *bourse.Order) shape {
	// An order that is only prepared takes less than its quote says, and one that uses a
	// volume, a reservation or a runtime of its own is cached for no other.
	if !o.Warm() && o.Config.Guest == nil || o.SkipLaunch || o.Reservation != "" || len(o.Config.Mounts) > 0 || o.Config.Rootfs != nil || o.Config.Runtime != "" {
		return shape{}
	}
	s := shape{app: o.App.Ref(), image: o.Config.Image}
	if o.Warm() {
		s.task = o.Task.Name
	} else {
		s.guest = *o.Config.Guest
	}
	if len(o.Config.Requirements) == 0 {
		return s
	}
	var needs []byte
	for _, name := range slices.Sorted(maps.Keys(o.Config.Requirements)) {
		r := o.Config.Requirements[name]
		needs = strconv.AppendQuote(append(append(needs, name...), '='), r.Label)
		needs = append(strconv.AppendInt(append(needs, ','), r.Count, 10), ';')
	}
	if len(needs) > maxNeeds {
		return shape{}
	}
	s.needs = string(needs)
	return s
}

// plain reports whether a quote for o's shape is all that there is to ask.
// A name may be taken, an order of the caller's own id filled already; races
// and leases are too rare to cache.
func plain(o *bourse.Order) bool {
	return !o.Named && o.Name == "" && o.Race <= 1 && o.LeaseTTL == 0
}

// unasked claims an order at the best of members by their cached quotes,
// if there is one of each. Without a fill it returns those that have to be
// asked: all but the one that was claimed at. Its refusal is final, and a
// cancellation for it may be in flight, which a second claim must not meet.
func (t *trade) unasked(ctx context.Context, round bourse.Round, members []bourse.Member) (*bourse.Fill, []bourse.Member) {
	if t.quoteOnly || len(members) < 2 || !plain(t.order) {
		return nil, members
	}
	t.since = t.x.ahead.now()
	quotes, age := t.x.cache.all(&t.shape, members, round.Regions, time.Now())
	if quotes == nil {
		return nil, members
	}
	round.Asked, round.Standing = 0, max(age, 1)
	t.decision.Rounds = append(t.decision.Rounds, round)
	best := t.rank(members, quotes, 0)[0].Quote
	if fill := t.claimBatch(ctx, []*bourse.Member{&members[best]}, true); fill != nil {
		return fill, nil
	}
	return nil, slices.Concat(members[:best], members[best+1:])
}

// all returns the cached quotes of members, of the same index, and the age
// of the oldest; nil unless there is one of each, and one that is willing. Their
// lists are shared.
func (s *quoteCache) all(of *shape, members []bourse.Member, choice bourse.Choice, now time.Time) ([]bourse.Quote, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var quotes []bourse.Quote
	oldest, willing := now, false
	for i := range members {
		d := s.workers[members[i].ID]
		if d == nil {
			return nil, 0
		}
		w, ok := d.words[*of]
		if !ok || now.Sub(w.asked) > s.within || !d.reliable(&members[i], choice, now.Add(-s.silence)) {
			return nil, 0
		}
		if quotes == nil {
			quotes = make([]bourse.Quote, len(members))
		}
		quotes[i] = d.facts
		if w.asked.Before(oldest) {
			oldest = w.asked
		}
		if w.no || !fits(d.facts.Accounts, w.takes) {
			quotes[i].Refusal = &cachedNo
			continue
		}
		willing = true
		quotes[i].Takes, quotes[i].MissingBytes, quotes[i].AppMachines = w.takes, w.missing, d.machines[of.app]
	}
	if !willing {
		return nil, 0
	}
	return quotes, now.Sub(oldest)
}

// cachedNo leaves a worker out of a ranking. No caller sees it.
var cachedNo = bourse.Refusal{Reason: bourse.RefusedResource}

// reliable reports whether what is cached is still of m, a worker that is in
// choice by its own quote and has not left a claim unanswered since.
func (d *cachedWorker) reliable(m *bourse.Member, choice bourse.Choice, since time.Time) bool {
	same := d.member.Address == m.Address && d.member.Tag == m.Tag && d.member.Region == m.Region
	return same && slices.Contains(choice, d.facts.Region) && (d.claims == 0 || !d.heard.Before(since))
}

func fits(accounts []bourse.Account, takes bourse.Amounts) bool {
	for _, want := range takes {
		i := slices.IndexFunc(accounts, func(a bourse.Account) bool { return a.Resource == want.Resource })
		if i < 0 || accounts[i].Free() < want.Amount {
			return false
		}
	}
	return true
}

// hear caches the vetted quotes of members that were asked at a time.
func (s *quoteCache) hear(of *shape, asked time.Time, members []bourse.Member, quotes []bourse.Quote) {
	if s.within < 0 || *of == (shape{}) {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range quotes {
		switch q := &quotes[i]; {
		case q.Fill() != nil: // it says nothing about one more machine
		case silent(q) || oversize(q):
			s.drop(members[i].ID)
		case q.Refusal != nil && of.task != "" && q.Refusal.Reason == bourse.RefusedUnknown: // few workers serve a task
			s.put(&members[i], of, q, asked, now)
		case q.Refusal != nil && q.Refusal.Reason != bourse.RefusedResource: // it is unknown for how long, and in which regions
			s.drop(members[i].ID)
		default:
			s.put(&members[i], of, q, asked, now)
		}
	}
}

func oversize(q *bourse.Quote) bool {
	return len(q.Accounts) > maxLines || len(q.Takes) > maxLines ||
		slices.ContainsFunc(q.Accounts, func(a bourse.Account) bool { return len(a.Resource) > maxWord }) ||
		slices.ContainsFunc(q.Takes, func(a bourse.Amount) bool { return len(a.Resource) > maxWord })
}

func (s *quoteCache) put(m *bourse.Member, of *shape, q *bourse.Quote, asked, now time.Time) {
	if s.count >= s.most { // most of it has expired, and the rest costs one round to have again
		clear(s.workers)
		s.count = 0
	}
	d := s.workers[m.ID]
	if d == nil {
		d = &cachedWorker{machines: map[bourse.AppRef]int{}, words: map[shape]said{}}
		s.workers[m.ID] = d
	}
	if _, known := d.words[*of]; !known {
		s.count++
	}
	d.member, d.heard = *m, now
	d.words[*of] = said{asked, q.Refusal != nil, q.Takes, q.MissingBytes}
	if q.Refusal != nil { // it has nothing else
		d.facts.Worker, d.facts.Region = m.ID, q.Region
		return
	}
	d.facts = bourse.Quote{Worker: m.ID, Region: q.Region, Accounts: d.heardOf(q.Accounts), Load: q.Load}
	d.machines[of.app] = q.AppMachines
}

// drop removes a worker. A claim in progress there keeps its entry.
func (s *quoteCache) drop(id bourse.WorkerID) {
	if d := s.workers[id]; d != nil {
		s.count -= len(d.words)
		delete(s.workers, id)
	}
}

// claiming subtracts what a claim will take from the worker's quotes, before the
// claim is sent, so that orders of the same moment do not all go to the same
// worker. Its answer goes to answered, with the entry.
func (s *quoteCache) claiming(id bourse.WorkerID, of *shape, now time.Time) *cachedWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.workers[id]
	if d == nil {
		return nil
	}
	w, ok := d.words[*of]
	if !ok || w.no { // it is unknown how much it takes
		s.drop(id)
		return nil
	}
	d.change(w.takes, 1)
	if of.task == "" {
		d.machines[of.app]++
	}
	if d.claims == 0 && d.heard.Before(now) {
		d.heard = now
	}
	d.claims++
	return d
}

// answered ends a claim. A worker that did not fill it is not what it was
// taken for; one that has answered a task has back what the task took.
func (s *quoteCache) answered(id bourse.WorkerID, d *cachedWorker, of *shape, filled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d != nil {
		d.claims--
		d.heard = time.Now()
		if w, ok := d.words[*of]; ok && filled && of.task != "" {
			d.change(w.takes, -1)
		}
	}
	if !filled {
		s.drop(id)
	}
}

// change adds amounts to what the worker has in use, or with -1 subtracts them.
func (d *cachedWorker) change(takes bourse.Amounts, sign int64) {
	d.facts.Accounts = slices.Clone(d.facts.Accounts)
	for i := range d.facts.Accounts {
		a := &d.facts.Accounts[i]
		a.Used = min(max(0, a.Used+sign*takes.Of(a.Resource)), bourse.MaxAmount)
	}
}

// heardOf returns the accounts of a new quote with those lines of the last one
// that it lacks: a quote for one task does not have another's
// places. Expiry is recorded in words.
func (d *cachedWorker) heardOf(accounts []bourse.Account) []bourse.Account {
	out := accounts
	for _, old := range d.facts.Accounts {
		known := slices.ContainsFunc(accounts, func(a bourse.Account) bool { return a.Resource == old.Resource })
		if !known && len(out) < maxLines {
			out = append(slices.Clip(out), old)
		}
	}
	return out
}
