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

// quoteCache caches the latest quotes of workers for a short time, so that an order like an earlier one can be
// claimed without asking first. It is a hint: the worker checks its ledger in the claim, and if the worker refuses or
// anything is in doubt, the workers are asked as usual. A cached refusal only excludes its worker from the ranking;
// no order is refused from the cache.
type quoteCache struct {
	within  time.Duration // how long a quote is cached; negative: not at all
	silence time.Duration // a worker with a claim unanswered for this long is asked first
	most    int           // maximum of count

	mu      sync.Mutex
	workers map[bourse.WorkerID]*cachedWorker
	count   int // entries of quotes in all workers
}

// cachedWorker holds the latest quotes of one worker, adjusted for the claims made there since.
type cachedWorker struct {
	member     bourse.Member         // as of the request
	facts      bourse.Quote          // the same for every order: region, load, accounts; accounts are replaced, never changed in place
	machines   map[bourse.AppRef]int // running machines per app; tasks do not count
	quotes     map[shape]cachedQuote
	claims     int       // not answered yet
	answeredAt time.Time // last answer, or the first of claims if that is later
}

// cachedQuote is the latest quote of a worker for one shape.
type cachedQuote struct {
	asked   time.Time
	no      bool
	takes   bourse.Amounts
	missing int64
}

// shape contains everything that a worker considers in an order for a new machine, except its regions. The zero shape
// means that the order's quotes cannot be cached.
type shape struct {
	app   bourse.AppRef
	image string
	guest bourse.Guest
	needs string // the requirements, encoded
	task  string // name of the task for which a machine has to be warm
}

// Limits of the cache, whatever orders and workers send.
const (
	maxCached = 4096 // words
	maxNeeds  = 512  // bytes of a shape's requirements
	maxLines  = 64   // entries of accounts and takes
)

func shapeOf(o *bourse.Order) shape {
	// A quote is too high for an order that is only prepared. An order with a volume, a reservation or its own
	// runtime has no successor with the same quote.
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

// cacheable reports whether a quote for o's shape answers everything about o. A machine's name may be taken, and an order
// with a caller's id may be filled already. Races and leases are too rare to cache.
func cacheable(o *bourse.Order) bool {
	return !o.Named && o.Name == "" && o.Race <= 1 && o.LeaseTTL == 0
}

// claimCached claims the order at the best of members by their cached quotes, if every member has one. Without a fill it
// returns the members that have to be asked: all except the one that was claimed. That worker's refusal is final, and
// a cancellation may be in flight to it, which must not meet a second claim.
func (t *trade) claimCached(ctx context.Context, round bourse.Round, members []bourse.Member) (*bourse.Fill, []bourse.Member) {
	if t.quoteOnly || len(members) < 2 || !cacheable(t.order) {
		return nil, members
	}
	t.since = t.x.recentPicks.now()
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

// all returns the cached quotes of members, with the same index, and the age of the oldest. It returns nil unless
// every member has a quote and at least one is willing. The slices in the quotes are shared.
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
		w, ok := d.quotes[*of]
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

// cachedNo excludes a worker from a ranking. No caller sees it.
var cachedNo = bourse.Refusal{Reason: bourse.RefusedResource}

// reliable reports whether the cached quotes still belong to m, a worker that is in choice by its own quote and has
// left no claim unanswered since.
func (d *cachedWorker) reliable(m *bourse.Member, choice bourse.Choice, since time.Time) bool {
	same := d.member.Address == m.Address && d.member.Tag == m.Tag && d.member.Region == m.Region
	return same && slices.Contains(choice, d.facts.Region) && (d.claims == 0 || !d.answeredAt.Before(since))
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

// store caches the vetted quotes of members, which were requested at asked.
func (s *quoteCache) store(of *shape, asked time.Time, members []bourse.Member, quotes []bourse.Quote) {
	if s.within < 0 || *of == (shape{}) {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range quotes {
		switch q := &quotes[i]; {
		case q.Fill() != nil: // it does not say whether another machine fits
		case silent(q) || oversize(q):
			s.drop(members[i].ID)
		case q.Refusal != nil && of.task != "" && q.Refusal.Reason == bourse.RefusedUnknown: // few workers serve a task
			s.put(&members[i], of, q, asked, now)
		case q.Refusal != nil && q.Refusal.Reason != bourse.RefusedResource: // unknown for how long and in which regions it holds
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
	if s.count >= s.most { // most entries have expired, and the rest costs one round to get again
		clear(s.workers)
		s.count = 0
	}
	d := s.workers[m.ID]
	if d == nil {
		d = &cachedWorker{machines: map[bourse.AppRef]int{}, quotes: map[shape]cachedQuote{}}
		s.workers[m.ID] = d
	}
	if _, known := d.quotes[*of]; !known {
		s.count++
	}
	d.member, d.answeredAt = *m, now
	d.quotes[*of] = cachedQuote{asked, q.Refusal != nil, q.Takes, q.MissingBytes}
	if q.Refusal != nil { // it contains nothing else
		d.facts.Worker, d.facts.Region = m.ID, q.Region
		return
	}
	d.facts = bourse.Quote{Worker: m.ID, Region: q.Region, Accounts: d.mergeAccounts(q.Accounts), Load: q.Load}
	d.machines[of.app] = q.AppMachines
}

// drop removes a worker. A claim in progress there keeps its pointer to the entry.
func (s *quoteCache) drop(id bourse.WorkerID) {
	if d := s.workers[id]; d != nil {
		s.count -= len(d.quotes)
		delete(s.workers, id)
	}
}

// claiming subtracts from the worker's quotes what a claim will take, before the claim is sent, so that concurrent
// orders do not all go to the same worker. It returns the entry, which must be passed to answered.
func (s *quoteCache) claiming(id bourse.WorkerID, of *shape, now time.Time) *cachedWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.workers[id]
	if d == nil {
		return nil
	}
	w, ok := d.quotes[*of]
	if !ok || w.no { // unknown how much it takes
		s.drop(id)
		return nil
	}
	d.change(w.takes, 1)
	if of.task == "" {
		d.machines[of.app]++
	}
	if d.claims == 0 && d.answeredAt.Before(now) {
		d.answeredAt = now
	}
	d.claims++
	return d
}

// answered ends a claim. If the worker did not fill it, its quotes were wrong and are dropped. If it was a task, its
// resources are free again.
func (s *quoteCache) answered(id bourse.WorkerID, d *cachedWorker, of *shape, filled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d != nil {
		d.claims--
		d.answeredAt = time.Now()
		if w, ok := d.quotes[*of]; ok && filled && of.task != "" {
			d.change(w.takes, -1)
		}
	}
	if !filled {
		s.drop(id)
	}
}

// change adds sign times takes to the worker's used amounts.
func (d *cachedWorker) change(takes bourse.Amounts, sign int64) {
	d.facts.Accounts = slices.Clone(d.facts.Accounts)
	for i := range d.facts.Accounts {
		a := &d.facts.Accounts[i]
		a.Used = min(max(0, a.Used+sign*takes.Of(a.Resource)), bourse.MaxAmount)
	}
}

// mergeAccounts adds to the accounts of a new quote those that only the previous quote contains, because a quote for one
// task does not contain other tasks' slots. The field quotes tracks when they expire.
func (d *cachedWorker) mergeAccounts(accounts []bourse.Account) []bourse.Account {
	out := accounts
	for _, old := range d.facts.Accounts {
		known := slices.ContainsFunc(accounts, func(a bourse.Account) bool { return a.Resource == old.Resource })
		if !known && len(out) < maxLines {
			out = append(slices.Clip(out), old)
		}
	}
	return out
}
