package market

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Config configures an Exchange. It must not be changed after New.
type Config struct {
	Directory     Directory         // required
	Trader        Trader            // required
	Cancellations CancellationStore // optional: without it, undeliverable cancellations are in memory only
	Log           *slog.Logger      // default: none
	// Decided, if set, is called once with each order that Place has decided, however many calls wait for it. It must
	// not block or retain its arguments. The fill is nil for an order that was not filled.
	Decided func(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision, err error)
	// Rand is the source of randomness; tests set a seeded one. It is used under a lock, and only to seed each
	// order's own source. Default: a random seed.
	Rand   rand.Source
	Curves Curves // default: DefaultCurves for every region
	// SampleAbove is the number of candidates above which only a sample of a choice is asked at first. Default 32.
	SampleAbove int
	// Sample is the size of that sample. Default 8.
	Sample int
	// QuoteWithin is how long the exchange waits for quotes. Default 250 ms.
	QuoteWithin time.Duration
	// QuoteTTL is how long a willing quote may be used for further orders of the same kind without asking again.
	// Default 1 s; a negative value disables it.
	QuoteTTL time.Duration
	// Recorded is the number of recorded decisions about filled orders, and also of those about orders that were not
	// filled. Default 4096.
	Recorded int
	// CancelWithin is how long an undeliverable cancellation is retried. If its worker will also find it in the CancellationStore, it
	// is retried for a tenth of that. Default 10 min.
	CancelWithin time.Duration
	// CancelQueue is the maximum number of such cancellations. Beyond it, the oldest are dropped. Default 4096.
	CancelQueue int
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	if c.Curves.Default == nil {
		c.Curves.Default = DefaultCurves()
	}
	orDefault(&c.SampleAbove, 32)
	orDefault(&c.Sample, 8)
	orDefault(&c.QuoteWithin, 250*time.Millisecond)
	if c.QuoteTTL == 0 {
		c.QuoteTTL = time.Second
	}
	orDefault(&c.Recorded, 4096)
	orDefault(&c.CancelWithin, 10*time.Minute)
	orDefault(&c.CancelQueue, 4096)
	return c
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Exchange fills orders. It is safe for concurrent use.
type Exchange struct {
	cfg         Config
	rngSource   *rngSource
	inflight    inflight
	recentPicks recentPicks
	cache       quoteCache
	filled      memory // separate, so that many fills do not displace the refusals, which are stored nowhere else
	refused     memory // includes canceled orders and timeouts
	undelivered *cancelQueue
}

// New returns an exchange. It starts nothing. Unless Run is running, cancellations that could not be delivered at
// once are not retried.
func New(cfg Config) *Exchange {
	cfg = cfg.withDefaults()
	rngSource := &rngSource{source: cfg.Rand}
	return &Exchange{
		cfg: cfg, rngSource: rngSource, undelivered: newCancelQueue(&cfg, rngSource.rng()),
		cache:  quoteCache{within: cfg.QuoteTTL, silence: cfg.QuoteWithin, most: maxCached, workers: map[bourse.WorkerID]*cachedWorker{}},
		filled: newMemory(cfg.Recorded), refused: newMemory(cfg.Recorded),
	}
}

// Run retries the cancellations that Place could not deliver, until ctx ends. It returns nil. Workers find in the CancellationStore
// the cancellations that are still undelivered then, or when the process is killed.
func (x *Exchange) Run(ctx context.Context) error { return x.undelivered.run(ctx) }

// Place fills an order that has been validated and normalized, before its deadline.
// The decision is set for every outcome and explains it. The error's code is one of
//
//   - insufficient_capacity: no worker accepts the order; the message lists the reasons
//   - already_exists: the machine's name is taken in its app
//   - failed_precondition: the order's reservation no longer exists
//   - unavailable: no worker answered, and nothing happened
//   - timeout: the deadline passed, and the order was canceled where it was claimed;
//     or it is unknown whether the order is filled, which a repetition finds out
//   - canceled: the caller left, and the order was canceled where it was claimed
//
// Concurrent calls with one order id are one order: later calls return the first
// one's result. The order continues as long as any of the callers waits.
func (x *Exchange) Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return bourse.Fill{}, abandoned(&order), errLeft(err)
	}
	stay := ctx
	if mustFillOnce(&order) {
		stay = context.WithoutCancel(ctx)
	}
	f, work, err := x.inflight.join(stay, order.ID, softDeadline(began, order.Deadline()))
	if err != nil {
		return bourse.Fill{}, abandoned(&order), err
	}
	if work == nil {
		return x.inflight.wait(ctx, f, &order)
	}
	defer x.inflight.finish(f)
	t := x.newTrade(&order, began)
	t.at = &f.at
	if order.Named {
		order.Try = strconv.FormatUint(t.rng.Uint64(), 36)
	}
	fill, err := t.place(work)
	if fill != nil {
		t.endPick(fill.Sale().Worker)
	}
	t.endPick("")
	t.finish(fill, err)
	if x.cfg.Decided != nil {
		x.cfg.Decided(&order, fill, &t.decision, err)
	}
	f.decision, f.err = t.decision, err
	if err != nil {
		x.refused.put(t.decision)
		return bourse.Fill{}, f.decision, err
	}
	f.fill = *fill
	x.remember(&order, fill, &t.decision)
	return f.fill, f.decision, nil
}

// Claiming returns the worker at which an order in progress was last claimed. That worker may be pulling the image.
func (x *Exchange) Claiming(id bourse.OrderID) (bourse.Member, bool) { return x.inflight.claiming(id) }

// Quote returns what Place would do up to the first claim: it asks and ranks the workers, and takes nothing. The
// decision's outcome is quoted, with the best worker first in the last round. The errors are those of Place. If a
// worker has already filled the order, the decision names it and its machine.
func (x *Exchange) Quote(ctx context.Context, order bourse.Order) (bourse.Decision, error) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, softDeadline(began, order.Deadline()))
	defer cancel()
	t := x.newTrade(&order, began)
	t.quoteOnly = true
	fill, err := t.place(ctx)
	t.finish(fill, err)
	return t.decision, err
}

// Decisions returns the records of the order with this id, and of all orders whose callers chose it, that this
// exchange decided recently.
func (x *Exchange) Decisions(id bourse.OrderID) []bourse.Decision {
	if d, ok := x.Decision(id); ok {
		return []bourse.Decision{d}
	}
	return append(x.filled.chosen(id), x.refused.chosen(id)...)
}

// Recent returns at most limit recent decisions of this exchange for which keep returns true, newest first. keep must
// not block.
func (x *Exchange) Recent(limit int, keep func(*bourse.Decision) bool) []bourse.Decision {
	out := x.refused.recent(x.filled.recent(nil, keep), keep)
	slices.SortFunc(out, func(a, b bourse.Decision) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Order, a.Order)) })
	return out[:min(limit, len(out))]
}

// Decision returns the record of an order that this exchange decided recently, with its claims and times. Its slices
// are shared and must not be changed.
func (x *Exchange) Decision(id bourse.OrderID) (bourse.Decision, bool) {
	if d, ok := x.filled.get(id); ok {
		return d, true
	}
	return x.refused.get(id)
}

// remember records a fill. The decision of a repetition contains only where the machine was found. The decision that
// created the machine is recorded here or by its worker.
func (x *Exchange) remember(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision) {
	switch old, known := x.filled.get(d.Order); {
	case !fill.Again:
		x.filled.put(*d)
	case known && (old.Machine != d.Machine || old.Volume != d.Volume): // another broker's fill has won since
		x.filled.drop(d.Order)
	}
	if order.Named { // the refusal of an earlier try no longer applies
		x.refused.drop(d.Order)
	}
}

// candidates returns the workers of each choice, one choice after the other, and the index at which each choice ends.
// in returns the workers of a region in a slice that the caller owns. A worker that the hint lists in two regions
// belongs to the first. A pinned order has at most one candidate, the worker that has its volume. The candidates of
// an order with a reservation are the workers that hold capacity for it.
func candidates(order *bourse.Order, in func(bourse.Region) []bourse.Member, choices ...bourse.Choice) (members []bourse.Member, ends []int) {
	members, ends = allCandidates(in, choices)
	pin := order.Pinned()
	if pin == 0 && order.Reservation == "" {
		return members, ends
	}
	few, next := members[:0], 0
	for i := range members {
		for next < len(ends) && ends[next] == i {
			ends[next], next = len(few), next+1
		}
		if m := &members[i]; (pin == 0 || m.Tag == pin) && reserved(order, m) {
			few = append(few, *m)
		}
	}
	for ; next < len(ends); next++ {
		ends[next] = len(few)
	}
	return few, ends
}

func allCandidates(in func(bourse.Region) []bourse.Member, choices []bourse.Choice) (members []bourse.Member, ends []int) {
	if len(choices) == 1 && len(choices[0]) == 1 { // by far the most frequent case, and the hint has no duplicates
		members = in(choices[0][0])
		return members, []int{len(members)}
	}
	seen := map[bourse.WorkerID]bool{}
	for _, choice := range choices {
		for _, region := range choice {
			for _, m := range in(region) {
				if !seen[m.ID] {
					seen[m.ID] = true
					members = append(members, m)
				}
			}
		}
		ends = append(ends, len(members))
	}
	return members, ends
}

// accepting returns a function that selects from here the workers of a region that accept orders.
func accepting(here []bourse.Member) func(bourse.Region) []bourse.Member {
	return func(region bourse.Region) (out []bourse.Member) {
		for i := range here {
			if m := &here[i]; m.Region == region && !m.Leaving {
				out = append(out, *m)
			}
		}
		return out
	}
}

// rngSource creates each order's own source of randomness.
type rngSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (c *rngSource) rng() *rand.Rand {
	c.mu.Lock()
	a, b := c.source.Uint64(), c.source.Uint64()
	c.mu.Unlock()
	return rand.New(rand.NewPCG(a, b))
}

// softDeadline returns the time at which the exchange stops working on an order. The time from then to the deadline is
// for canceling claims that may have succeeded and for sending the reply.
func softDeadline(began time.Time, within time.Duration) time.Time {
	return began.Add(within - min(within/8, 500*time.Millisecond))
}
