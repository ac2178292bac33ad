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

// quoteCache caches the latest quotes of workers for a short time. An order that is similar to an earlier one can then
// be claimed without asking the workers first. The cache is only a hint, because a worker checks its ledger when it
// receives a claim. If the worker refuses, or if there is any doubt, the workers are asked as usual. A cached refusal
// only excludes its worker from the ranking; it never causes an order to be refused.
type quoteCache struct {
	timeout    time.Duration // how long quotes are cached; negative: they are not cached
	retryAfter time.Duration // a worker that has not answered a claim for this long must be asked before it is claimed again
	max        int           // maximum value of count

	mu      sync.Mutex
	workers map[bourse.WorkerID]*cachedWorker
	count   int // number of cached quotes of all workers
}

// cachedWorker contains the latest quotes of one worker. They are adjusted for the claims that have
// been sent to the worker since the quotes arrived.
type cachedWorker struct {
	member     bourse.Member         // the worker as it was when the quotes were requested
	facts      bourse.Quote          // region, load and accounts, which do not depend on the order; the accounts are never modified in place
	machines   map[bourse.AppRef]int // number of running machines of each app; tasks do not count
	quotes     map[shape]cachedQuote
	claims     int       // number of claims that the worker has not answered yet
	answeredAt time.Time // time of the latest answer, or of the first unanswered claim if that is later
}

// cachedQuote is the latest quote of a worker for one shape.
type cachedQuote struct {
	asked   time.Time
	refused bool
	takes   bourse.Amounts
	missing int64
}

// shape contains all properties of an order for a new machine or a warm task that affect a worker's
// quote, except the order's regions. Orders with equal shapes get equal quotes. The zero shape means
// that an order's quotes cannot be cached.
type shape struct {
	app   bourse.AppRef
	image string
	guest bourse.Guest
	needs string // the order's requirements, encoded
	task  string // name of the task for which the worker needs a warm machine; "" if the order is not for such a task
}

// Limits of the cache. They bound its size regardless of the contents of orders and quotes.
const (
	maxCached = 4096 // number of quotes
	maxNeeds  = 512  // length of a shape's requirements, in bytes
	maxLines  = 64   // number of accounts, and of takes, in a quote
)

func shapeOf(o *bourse.Order) shape {
	// Quotes for the following orders are not cached. If the machine will not be launched, the
	// worker does not check for free devices, so its quote would be too optimistic for orders whose
	// machines are launched. If the order has a volume, a reservation, or a root file system or
	// runtime of its own, no later order would get the same quote.
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

// cacheable reports whether an order may be claimed on the basis of cached quotes for its shape.
// This is not permitted if the order has a machine name, because the name may be taken, or an ID
// chosen by the caller, because the order may already be filled. Races and leases are excluded
// because they are rare.
func cacheable(o *bourse.Order) bool {
	return !o.HasChosenID && o.Name == "" && o.Race <= 1 && o.LeaseTTL == 0
}

// claimCached claims the order on the member that ranks best by the cached quotes. It does nothing unless every member
// has a cached quote. If the order is not filled, claimCached returns the members that must still be asked. These do
// not include the worker that it tried. If that worker refused, the refusal is final. If its answer was lost, another
// claim could race with the cancellation that was sent to the worker.
func (t *trade) claimCached(ctx context.Context, round bourse.Round, members []bourse.Member) (*bourse.Fill, []bourse.Member) {
	if t.quoteOnly || len(members) < 2 || !cacheable(t.order) {
		return nil, members
	}
	t.since = t.exchange.recentPicks.now()
	quotes, age := t.exchange.cache.all(&t.shape, members, round.Regions, time.Now())
	if quotes == nil {
		return nil, members
	}
	round.Asked, round.OldestQuote = 0, max(age, 1)
	t.decision.Rounds = append(t.decision.Rounds, round)
	best := t.rank(members, quotes, 0)[0].Quote
	if fill := t.claimBatch(ctx, []*bourse.Member{&members[best]}, true); fill != nil {
		return fill, nil
	}
	return nil, slices.Concat(members[:best], members[best+1:])
}

// all returns the members' cached quotes, in the order of members, and the age of the oldest
// quote. It returns nil unless every member has a quote and at least one of them is willing. The
// slices in the quotes are shared.
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
		if !ok || now.Sub(w.asked) > s.timeout || !d.usable(&members[i], choice, now.Add(-s.retryAfter)) {
			return nil, 0
		}
		if quotes == nil {
			quotes = make([]bourse.Quote, len(members))
		}
		quotes[i] = d.facts
		if w.asked.Before(oldest) {
			oldest = w.asked
		}
		if w.refused || !fits(d.facts.Accounts, w.takes) {
			quotes[i].Refusal = &cachedRefusal
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

// cachedRefusal is the refusal that excludes a worker from a ranking. Callers never see it.
var cachedRefusal = bourse.Refusal{Reason: bourse.RefusedResource}

// usable reports whether the cached quotes may be used for m. The quotes must name a region in choice, and m's address,
// tag and region must not have changed since the quotes were requested. If m has unanswered claims, either its latest
// answer must have arrived after the time since, or the first unanswered claim must have been sent after that time.
func (d *cachedWorker) usable(m *bourse.Member, choice bourse.Choice, since time.Time) bool {
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

// store caches the members' checked quotes. The asked parameter is the time when the quotes were requested.
func (s *quoteCache) store(of *shape, asked time.Time, members []bourse.Member, quotes []bourse.Quote) {
	if s.timeout < 0 || *of == (shape{}) {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range quotes {
		switch q := &quotes[i]; {
		case q.Fill() != nil: // the quote does not show whether another machine fits
		case silent(q) || oversize(q):
			s.drop(members[i].ID)
		case q.Refusal != nil && of.task != "" && q.Refusal.Reason == bourse.RefusedUnknown: // cache the refusal, because most workers do not serve the task
			s.put(&members[i], of, q, asked, now)
		case q.Refusal != nil && q.Refusal.Reason != bourse.RefusedResource: // it is unknown for how long and for which orders the refusal is valid
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
	if s.count >= s.max { // start over: most quotes have expired, and the others can be requested again in one round
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
	if q.Refusal != nil { // a quote with a refusal contains no other data
		d.facts.Worker, d.facts.Region = m.ID, q.Region
		return
	}
	d.facts = bourse.Quote{Worker: m.ID, Region: q.Region, Accounts: d.mergeAccounts(q.Accounts), Load: q.Load}
	d.machines[of.app] = q.AppMachines
}

// drop removes a worker from the cache. Claims in progress keep their pointers to the removed
// entry.
func (s *quoteCache) drop(id bourse.WorkerID) {
	if d := s.workers[id]; d != nil {
		s.count -= len(d.quotes)
		delete(s.workers, id)
	}
}

// claiming adjusts a worker's quotes for a claim: from now on, the amounts that the claim will take are treated as
// used. It is called before the claim is sent, so that concurrent orders do not all go to the same worker. It returns
// the worker's entry, which must be passed to answered.
func (s *quoteCache) claiming(id bourse.WorkerID, of *shape, now time.Time) *cachedWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.workers[id]
	if d == nil {
		return nil
	}
	w, ok := d.quotes[*of]
	if !ok || w.refused { // the amounts that the claim will take are unknown
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

// answered must be called when a claim has ended. If the worker did not fill the order, answered
// drops the worker's quotes, because they were wrong. If the order was a task, its resources count
// as free again.
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

// change adds the amounts in takes to the worker's used amounts if sign is 1, and subtracts them if
// sign is -1.
func (d *cachedWorker) change(takes bourse.Amounts, sign int64) {
	d.facts.Accounts = slices.Clone(d.facts.Accounts)
	for i := range d.facts.Accounts {
		a := &d.facts.Accounts[i]
		a.Used = min(max(0, a.Used+sign*takes.Of(a.Resource)), bourse.MaxAmount)
	}
}

// mergeAccounts returns the accounts of a new quote, followed by those that only earlier quotes contained. For example,
// a quote for one task contains an account for that task's slots, but not for the slots of other tasks. A quote that
// contains an account for the CPU also contains the accounts for all GPUs. Accounts do not expire on their own: they
// are used only together with an entry in quotes, which expires.
func (d *cachedWorker) mergeAccounts(accounts []bourse.Account) []bourse.Account {
	has := func(r bourse.Resource) bool {
		return slices.ContainsFunc(accounts, func(a bourse.Account) bool { return a.Resource == r })
	}
	out := accounts
	for _, old := range d.facts.Accounts {
		removed := old.Resource.IsGPU() && has(bourse.ResourceCPU)
		if !has(old.Resource) && !removed && len(out) < maxLines {
			out = append(slices.Clip(out), old)
		}
	}
	return out
}
