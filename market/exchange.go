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

// Config is what an exchange is made of. It is not changed after New.
type Config struct {
	Directory Directory    // required
	Trader    Trader       // required
	Voids     Voids        // nil: cancellations that cannot be delivered are in memory only
	Log       *slog.Logger // default: none
	// Decided is called once with each order that Place has decided, however many
	// calls wait for it; it must not block, or keep what it gets. The fill is nil
	// for an order that was not filled. nil: no one counts.
	Decided func(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision, err error)
	// Rand is the source of randomness; tests set a seeded one. It is used
	// under a lock, and only to seed each order's own source. Default: a
	// random seed.
	Rand   rand.Source
	Curves Curves // default: DefaultCurves for every region
	// SampleAbove is the number of candidates past which only some of a
	// choice are asked at first. Default 32.
	SampleAbove int
	// Sample is how many are then asked. Default 8.
	Sample int
	// QuoteWithin is how long answers are waited for. Default 250 ms.
	QuoteWithin time.Duration
	// StandFor is how long a worker's yes may be relied on for further orders
	// of the same kind, without asking. Default 1 s; negative: not at all.
	StandFor time.Duration
	// Recorded is how many decisions are kept of orders that were filled, and
	// as many again of those that were not. Default 4096.
	Recorded int
	// VoidWithin is how long an undeliverable cancellation is retried: a tenth
	// of it when its worker will find it in Voids too. Default 10 min.
	VoidWithin time.Duration
	// VoidQueue is how many of them are held; the oldest are dropped. Default
	// 4096.
	VoidQueue int
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
	if c.StandFor == 0 {
		c.StandFor = time.Second
	}
	orDefault(&c.Recorded, 4096)
	orDefault(&c.VoidWithin, 10*time.Minute)
	orDefault(&c.VoidQueue, 4096)
	return c
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Exchange fills orders. It is safe for concurrent use.
type Exchange struct {
	cfg      Config
	chance   *chance
	inflight inflight
	ahead    ahead
	cache    quoteCache
	filled   memory // separate, so that many fills do not displace the refusals, which are kept nowhere else
	refused  memory // with those canceled and out of time
	voids    *voids
}

// New makes an exchange. It starts nothing; without a Run going on, what
// could not be canceled at once stays as it is.
func New(cfg Config) *Exchange {
	cfg = cfg.withDefaults()
	chance := &chance{source: cfg.Rand}
	return &Exchange{
		cfg: cfg, chance: chance, voids: newVoids(&cfg, chance.rng()),
		cache:  quoteCache{within: cfg.StandFor, silence: cfg.QuoteWithin, most: maxCached, workers: map[bourse.WorkerID]*cachedWorker{}},
		filled: newMemory(cfg.Recorded), refused: newMemory(cfg.Recorded),
	}
}

// Run delivers the cancellations that Place could not, until ctx ends. It
// returns nil. Those still undelivered then, or when the process is killed, are
// found in Voids by their workers.
func (x *Exchange) Run(ctx context.Context) error { return x.voids.run(ctx) }

// Place fills an order that was validated and normalized, before its deadline.
// The decision is set for every outcome, and explains it. The error's code is
//
//   - insufficient_capacity: no worker takes it; the message says why
//   - already_exists: the machine's name is taken in its app
//   - failed_precondition: the reservation that it takes from no longer exists
//   - unavailable: not one worker answered; nothing happened
//   - timeout: its deadline passed first; it was canceled where it was claimed.
//     Or it is unknown whether it is filled, which a repetition finds out
//   - canceled: the caller left; the same
//
// Concurrent calls with one order id are one order: the later ones get the
// first one's answer, as long as any of the callers waits.
func (x *Exchange) Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return bourse.Fill{}, abandoned(&order), errLeft(err)
	}
	stay := ctx
	if lasts(&order) {
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
		t.unchoose(fill.Sale().Worker)
	}
	t.unchoose("")
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

// Claiming returns the worker at which an order that is being placed here was claimed last:
// it may be pulling the image.
func (x *Exchange) Claiming(id bourse.OrderID) (bourse.Member, bool) { return x.inflight.claiming(id) }

// Quote returns what Place would do, up to the first claim: it asks and ranks,
// and takes nothing. The decision's outcome is quoted, with the best worker
// first in the last round; the errors are those of Place. A worker that has
// filled the order already is named with its machine.
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

// Decisions returns the records of the order of this id, and of all orders whose
// callers chose it, that this exchange decided recently.
func (x *Exchange) Decisions(id bourse.OrderID) []bourse.Decision {
	if d, ok := x.Decision(id); ok {
		return []bourse.Decision{d}
	}
	return append(x.filled.chosen(id), x.refused.chosen(id)...)
}

// Recent returns the newest of the decisions that this exchange made recently and
// that keep wants, newest first, limit at most. keep is not to block.
func (x *Exchange) Recent(limit int, keep func(*bourse.Decision) bool) []bourse.Decision {
	out := x.refused.recent(x.filled.recent(nil, keep), keep)
	slices.SortFunc(out, func(a, b bourse.Decision) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Order, a.Order)) })
	return out[:min(limit, len(out))]
}

// Decision returns the record of an order that this exchange decided recently, with
// its claims and times. The lists in it are shared and not to be changed.
func (x *Exchange) Decision(id bourse.OrderID) (bourse.Decision, bool) {
	if d, ok := x.filled.get(id); ok {
		return d, true
	}
	return x.refused.get(id)
}

// remember records a fill. A repetition's decision has only where the
// machine was found: the one that made it is kept, here or by its worker.
func (x *Exchange) remember(order *bourse.Order, fill *bourse.Fill, d *bourse.Decision) {
	switch old, known := x.filled.get(d.Order); {
	case !fill.Again:
		x.filled.put(*d)
	case known && (old.Machine != d.Machine || old.Volume != d.Volume): // another broker's fill has won since
		x.filled.drop(d.Order)
	}
	if order.Named { // the refusal of an earlier try is void
		x.refused.drop(d.Order)
	}
}

// candidates returns the workers of each choice, one choice after the other, and where
// each choice ends; in returns those of a region, as a slice of ours. A worker that
// the hint has in two regions is in the first. An order that is pinned has one
// candidate at most: the worker that has its volume; one that takes from a
// reservation, the workers that hold for it.
func candidates(order *bourse.Order, in func(bourse.Region) []bourse.Member, choices ...bourse.Choice) (members []bourse.Member, ends []int) {
	members, ends = everyone(in, choices)
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

func everyone(in func(bourse.Region) []bourse.Member, choices []bourse.Choice) (members []bourse.Member, ends []int) {
	if len(choices) == 1 && len(choices[0]) == 1 { // by far the most frequent, and the hint has no duplicates
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

// taking returns what finds, among all workers, those of a region that take orders.
func taking(here []bourse.Member) func(bourse.Region) []bourse.Member {
	return func(region bourse.Region) (out []bourse.Member) {
		for i := range here {
			if m := &here[i]; m.Region == region && !m.Leaving {
				out = append(out, *m)
			}
		}
		return out
	}
}

// chance makes each order's own source of randomness.
type chance struct {
	mu     sync.Mutex
	source rand.Source
}

func (c *chance) rng() *rand.Rand {
	c.mu.Lock()
	a, b := c.source.Uint64(), c.source.Uint64()
	c.mu.Unlock()
	return rand.New(rand.NewPCG(a, b))
}

// softDeadline is when an order's work ends. What is left until its deadline
// is for canceling what may have been filled and for the reply, so that the
// caller knows the end in time.
func softDeadline(began time.Time, within time.Duration) time.Time {
	return began.Add(within - min(within/8, 500*time.Millisecond))
}
