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

// DefaultSample is the default of Config.Sample. The lab in package sim measures its effect.
const DefaultSample = 20

// Config configures an Exchange. It must not be changed after New.
type Config struct {
	Directory     Directory         // required
	Trader        Trader            // required
	Cancellations CancellationStore // if nil, undeliverable cancellations are only kept in memory
	Log           *slog.Logger      // default: discards all records
	// OnDecision, if set, is called once for each order that Place has decided, even if several calls
	// wait for the order. It must not block or retain its arguments. The fill is nil if the order
	// was not filled.
	OnDecision func(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision, err error)
	// Rand is the source of randomness. It is used only to seed a separate source for each order. It does not have to
	// be safe for concurrent use. Tests set a seeded Rand. Default: a source with a random seed.
	Rand rand.Source
	// Policies returns the current policies. It is called once for each order, and must not block. Default: all workers
	// are ranked by DefaultCurves.
	Policies func() *Policies
	// Name is the broker's name. In large clusters, exchanges with different names prefer different workers, which makes
	// conflicts between their claims rare. See CurveSet.Position.
	Name string
	// Sample limits how many of a choice's candidates are asked at once. If there are more, the exchange asks a random
	// sample of this size first. Default DefaultSample.
	Sample int
	// QuoteTimeout is how long the exchange waits for quotes. Default 250 ms.
	QuoteTimeout time.Duration
	// QuoteTTL is how long a worker's quote may be reused for similar orders without asking the
	// worker again. Default 1 s. A negative value disables this.
	QuoteTTL time.Duration
	// MaxDecisions is the maximum number of recorded decisions about filled orders. The same
	// limit applies separately to decisions about other orders. Default 4096.
	MaxDecisions int
	// CancelTimeout is how long an undeliverable cancellation is retried. If the cancellation is
	// also in the CancellationStore, where its worker will find it, it is retried for only a tenth
	// of that time. Default 10 min.
	CancelTimeout time.Duration
	// CancelQueue is the maximum number of undeliverable cancellations. If there are more, the
	// oldest are dropped. Default 4096.
	CancelQueue int
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	if c.Policies == nil {
		none := NewPolicies(nil, nil)
		c.Policies = func() *Policies { return none }
	}
	orDefault(&c.Sample, DefaultSample)
	orDefault(&c.QuoteTimeout, 250*time.Millisecond)
	if c.QuoteTTL == 0 {
		c.QuoteTTL = time.Second
	}
	orDefault(&c.MaxDecisions, 4096)
	orDefault(&c.CancelTimeout, 10*time.Minute)
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
	filled      decisionLog // decisions about filled orders; separate, so that they do not displace refusals, which are stored nowhere else
	refused     decisionLog // decisions about all other orders, including canceled and timed-out ones
	cancels     *cancelQueue
	builtIn     *Policies // contains no policies, only the default curves
	comparisons comparisons
}

// New returns an exchange. It starts no goroutines. Cancellations that could not be delivered
// immediately are retried only while Run is running.
func New(cfg Config) *Exchange {
	cfg = cfg.withDefaults()
	rngSource := &rngSource{source: cfg.Rand}
	return &Exchange{
		cfg: cfg, rngSource: rngSource, builtIn: NewPolicies(nil, nil), cancels: newCancelQueue(&cfg, rngSource.rng()),
		cache:  quoteCache{timeout: cfg.QuoteTTL, retryAfter: cfg.QuoteTimeout, max: maxCached, workers: map[bourse.WorkerID]*cachedWorker{}},
		filled: newMemory(cfg.MaxDecisions), refused: newMemory(cfg.MaxDecisions),
	}
}

// Run retries the cancellations that Place could not deliver, until ctx is done. It returns nil.
// Cancellations that are still undelivered at that time, or when the process is killed, remain in
// the CancellationStore, where the workers find them.
func (x *Exchange) Run(ctx context.Context) error { return x.cancels.run(ctx) }

// Place fills an order before its deadline. The order must have been validated and normalized. The
// decision explains the outcome, even if Place returns an error. The error's code is one of
//
//   - insufficient_capacity: no worker accepts the order; the message lists the reasons
//   - already_exists: the app already has a machine with the order's name
//   - not_found: the image does not exist
//   - invalid: the image's program cannot be run
//   - failed_precondition: the order's reservation no longer exists
//   - unavailable: a worker or registry whose answer was needed did not answer, and this
//     call had no effect
//   - timeout: the deadline passed, and the order was canceled where it was claimed; or it
//     is unknown whether the order was filled, and the caller has to repeat it to find out
//   - canceled: the caller disconnected, and the order was canceled where it was claimed
//
// Concurrent calls with the same order ID are treated as one order: later calls return the result
// of the first one. The order continues as long as any caller is waiting.
func (x *Exchange) Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return bourse.Fill{}, abandoned(&order), errCallerGone(err)
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
	if order.HasChosenID {
		order.Try = strconv.FormatUint(t.rng.Uint64(), 36)
	}
	fill, err := t.place(work)
	if fill != nil {
		t.endPick(fill.Summary().Worker)
	}
	t.endPick("")
	t.finish(fill, err)
	if x.cfg.OnDecision != nil {
		x.cfg.OnDecision(&order, fill, &t.decision, err)
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

// Claiming returns the worker to which the most recent claim for an order in progress was sent. The worker may still be
// pulling the image. If the order is not in progress or has not been claimed, Claiming returns false.
func (x *Exchange) Claiming(id bourse.OrderID) (bourse.Member, bool) { return x.inflight.claiming(id) }

// Quote returns the decision that Place would have made before its first claim. It asks the workers
// for quotes and ranks the quotes, but does not claim the order. The outcome of the decision is
// "quoted", and the last round lists the workers, best first. Quote returns the same errors as
// Place. If a worker has already filled the order, the decision names the worker and the machine.
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

// Decisions returns the recorded decision about the order with the given ID. If there is none, it
// returns the decisions about all orders whose callers chose this ID.
func (x *Exchange) Decisions(id bourse.OrderID) []bourse.Decision {
	if d, ok := x.Decision(id); ok {
		return []bourse.Decision{d}
	}
	return append(x.filled.chosen(id), x.refused.chosen(id)...)
}

// Recent returns this exchange's recent decisions for which keep returns true, newest first. It returns at most limit
// of them. The keep function must not block.
func (x *Exchange) Recent(limit int, keep func(*bourse.Decision) bool) []bourse.Decision {
	out := x.refused.recent(x.filled.recent(nil, keep), keep)
	slices.SortFunc(out, func(a, b bourse.Decision) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Order, a.Order)) })
	return out[:min(limit, len(out))]
}

// Decision returns the decision about an order that this exchange has decided recently, with its
// claims and times. It returns false if there is none. The slices in the decision are shared and
// must not be modified.
func (x *Exchange) Decision(id bourse.OrderID) (bourse.Decision, bool) {
	if d, ok := x.filled.get(id); ok {
		return d, true
	}
	return x.refused.get(id)
}

// remember records the decision about a filled order. It does not record the decision about a repeated order, because
// that decision only names the existing machine and its worker. The decision that led to the machine has already been
// recorded, here or by the machine's worker.
func (x *Exchange) remember(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision) {
	switch old, known := x.filled.get(d.Order); {
	case !fill.Repeated:
		x.filled.put(*d)
	case known && (old.Machine != d.Machine || old.Volume != d.Volume): // another broker's fill has won in the meantime
		x.filled.drop(d.Order)
	}
	if order.HasChosenID { // refusals from earlier attempts no longer apply
		x.refused.drop(d.Order)
	}
}

// candidates returns the candidates for all choices, in the order of the choices, and the index at which each choice's
// candidates end. workersIn must return a region's workers, in a slice that candidates may modify. If a worker appears
// in several regions, only its first occurrence counts. A pinned order has at most one candidate, which is
// the worker that stores the order's volume. If the order has a reservation, only the workers of the reservation are
// candidates.
func candidates(order *bourse.Order, workersIn func(bourse.Region) []bourse.Member, choices ...bourse.Choice) (members []bourse.Member, ends []int) {
	members, ends = allCandidates(workersIn, choices)
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

func allCandidates(workersIn func(bourse.Region) []bourse.Member, choices []bourse.Choice) (members []bourse.Member, ends []int) {
	if len(choices) == 1 && len(choices[0]) == 1 { // the fast path for the most frequent case; a single region has no duplicates
		members = workersIn(choices[0][0])
		return members, []int{len(members)}
	}
	seen := map[bourse.WorkerID]bool{}
	for _, choice := range choices {
		for _, region := range choice {
			for _, m := range workersIn(region) {
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

// accepting returns a function that selects, from the given members, the workers of a region that accept orders.
func accepting(members []bourse.Member) func(bourse.Region) []bourse.Member {
	return func(region bourse.Region) (out []bourse.Member) {
		for i := range members {
			if m := &members[i]; m.Region == region && !m.Leaving {
				out = append(out, *m)
			}
		}
		return out
	}
}

// rngSource creates a source of randomness for each order.
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

// softDeadline returns the time when the exchange stops working on an order. The time between the soft and the actual
// deadline is reserved for canceling claims that may have succeeded, and for sending the reply.
func softDeadline(began time.Time, within time.Duration) time.Time {
	return began.Add(within - min(within/8, 500*time.Millisecond))
}
