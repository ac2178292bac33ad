package market

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/bourse-dev/bourse"
)

// patience is how many times as long the second asking waits when the first had no
// answer at all.
const patience = 4

// ask sends the order to members and returns their quotes, of the same index. One that
// did not answer in time has a refusal for silence.
func (t *trade) ask(ctx context.Context, members []bourse.Member) []bourse.Quote {
	began := time.Now()
	// However long workers hang, half of the time left is for claims.
	within := min(t.x.cfg.QuoteWithin, time.Until(t.deadline)/2)
	quotes := hear(ctx, t.x.cfg.Trader, within, t.order, members)
	if !slices.ContainsFunc(quotes, func(q bourse.Quote) bool { return q.Worker != "" }) && ctx.Err() == nil {
		// That no one at all has answered is rather our own fault, on a host that
		// is overloaded: they are asked once more, with a longer limit.
		within = min(patience*within, time.Until(t.deadline)/2)
		quotes = hear(ctx, t.x.cfg.Trader, within, t.order, members)
	}
	for i := range quotes {
		if q := &quotes[i]; q.Worker == "" {
			m := &members[i]
			q.Worker, q.Region = m.ID, m.Region
			q.Refusal = no(m, bourse.RefusedNoAnswer, "no answer within "+within.Round(time.Millisecond).String())
		}
	}
	t.decision.Times.Quote += time.Since(began)
	return quotes
}

// hear returns the first quote of each member, of the same index; the zero Quote
// for one that stayed silent. Quotes of others, second ones and late ones are
// dropped.
func hear(ctx context.Context, trader Trader, within time.Duration, order *bourse.Order, members []bourse.Member) []bourse.Quote {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	quotes := make([]bourse.Quote, len(members))
	index := make(map[bourse.WorkerID]int, len(members))
	for i := range members {
		index[members[i].ID] = i
	}
	var mu sync.Mutex // a fabric that answers late or from several goroutines must do no harm
	over := false
	trader.Ask(ctx, members, order.Asked(), func(q bourse.Quote) {
		mu.Lock()
		defer mu.Unlock()
		if i, ok := index[q.Worker]; ok && !over {
			quotes[i] = q
			delete(index, q.Worker)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return quotes
}

// silent reports whether q is for an answer that did not come, or that made
// no sense.
func silent(q *bourse.Quote) bool {
	return q.Refusal != nil && q.Refusal.Reason == bourse.RefusedNoAnswer
}

// vet turns a quote that cannot be taken into a refusal, and corrects what a
// refusal says of its sender. choice is what m was asked for: what counts is
// the region in its quote, not that of the directory
// (invariant 3).
func vet(q *bourse.Quote, m *bourse.Member, order *bourse.Order, choice bourse.Choice) {
	if q.Refusal != nil {
		q.Refusal = tidy(q.Refusal, m)
		unfill(q)
		return
	}
	if f := q.Fill(); f != nil {
		// The order's other choices are as good: it is there already.
		if !fills(f, order, m) || !names(order.Regions, f.Sale().Region) {
			q.Refusal = nonsense(m, "what fills another order, or on another worker or region")
			unfill(q)
		}
		return
	}
	if !slices.Contains(choice, q.Region) {
		q.Refusal = no(m, bourse.RefusedRegion, "the worker stands in region "+bourse.Quoted(string(q.Region)))
		return
	}
	if what := absurd(q); what != "" {
		q.Refusal = nonsense(m, what)
	}
}

// fills reports whether f is of the order, of its kind, and of what m can have: an id that leads to
// another worker would have the caller take what that one has for its own.
func fills(f *bourse.Fill, order *bourse.Order, m *bourse.Member) bool {
	if s := f.Sale(); s.Order != order.ID || s.Worker != m.ID || f.Kind() != order.Kind() {
		return false
	}
	switch f.Kind() {
	case bourse.KindMachine:
		return f.Machine.ID.Tag() == m.Tag
	case bourse.KindVolume:
		return f.Volume.ID.Tag() == m.Tag
	case bourse.KindHold:
		return f.Hold.Tag == m.Tag && f.Hold.Reservation == order.Hold.Reservation && f.Hold.Index == order.Hold.Index
	case bourse.KindTask:
	}
	return true
}

func unfill(q *bourse.Quote) {
	q.Filled, q.FilledVolume, q.FilledTask, q.FilledHold = nil, nil, nil, nil
}

// absurd names what is impossible in a willing quote, "" when nothing is.
func absurd(q *bourse.Quote) string {
	switch {
	case !(q.Load >= 0 && q.Load <= math.MaxFloat32):
		return "load"
	case q.MissingBytes < 0:
		return "missing bytes"
	case q.AppMachines < 0:
		return "number of machines"
	case q.Takes.Validate() != nil:
		return "takes"
	}
	for i, a := range q.Accounts {
		if a.Total < 0 || a.Total > bourse.MaxAmount || a.Used < 0 || a.Used > bourse.MaxAmount {
			return "account of " + bourse.Quoted(string(a.Resource))
		}
		if i > 0 && q.Accounts[i-1].Resource >= a.Resource {
			return "order of accounts"
		}
	}
	return ""
}

func names(choices []bourse.Choice, r bourse.Region) bool {
	return slices.ContainsFunc(choices, func(c bourse.Choice) bool { return slices.Contains(c, r) })
}

// no makes a refusal in a worker's name.
func no(m *bourse.Member, reason bourse.RefusalReason, detail string) *bourse.Refusal {
	return &bourse.Refusal{Worker: m.ID, Region: m.Region, Reason: reason, Detail: detail}
}

func nonsense(m *bourse.Member, what string) *bourse.Refusal {
	return no(m, bourse.RefusedNoAnswer, "its answer makes no sense: "+what)
}

// Bounds of a worker's refusal.
const (
	maxDetail = 512
	maxAlso   = 16
	maxWord   = 128
)

// tidy returns a worker's refusal with its sender as we know it, texts cut to
// what a record can hold and numbers that can be shown.
func tidy(r *bourse.Refusal, m *bourse.Member) *bourse.Refusal {
	out := *r
	out.Worker = m.ID
	if out.Region.Validate() != nil {
		out.Region = m.Region
	}
	out.Detail = cut(oneLine(out.Detail), maxDetail)
	out.Resource = cut(out.Resource, maxWord)
	out.Reason = bourse.RefusalReason(cut(string(out.Reason), maxWord))
	out.Wanted, out.Free = max(0, out.Wanted), max(0, out.Free)
	out.Also = slices.Clone(out.Also[:min(len(out.Also), maxAlso)])
	for i := range out.Also {
		s := &out.Also[i]
		s.Resource, s.Wanted, s.Free = cut(s.Resource, maxWord), max(0, s.Wanted), max(0, s.Free)
	}
	return &out
}

// oneLine takes from a worker's sentence what does not belong into one.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}
