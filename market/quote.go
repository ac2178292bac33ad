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

// retryFactor multiplies the time limit when all workers are asked again because none of them answered.
const retryFactor = 4

// ask requests quotes from members. It returns one quote for each member, in the same order. If a
// member did not answer in time, its quote contains a refusal with RefusedNoAnswer.
func (t *trade) ask(ctx context.Context, members []bourse.Member) []bourse.Quote {
	began := time.Now()
	// Reserve half of the remaining time for claims, even if workers do not answer.
	within := min(t.exchange.cfg.QuoteTimeout, time.Until(t.deadline)/2)
	quotes := collectQuotes(ctx, t.exchange.cfg.Trader, within, t.order, members)
	if !slices.ContainsFunc(quotes, func(q bourse.Quote) bool { return q.Worker != "" }) && ctx.Err() == nil {
		// If no worker has answered, this host is probably the cause, for example because it is overloaded. Ask once
		// more with a longer time limit.
		within = min(retryFactor*within, time.Until(t.deadline)/2)
		quotes = collectQuotes(ctx, t.exchange.cfg.Trader, within, t.order, members)
	}
	for i := range quotes {
		if q := &quotes[i]; q.Worker == "" {
			m := &members[i]
			q.Worker, q.Region = m.ID, m.Region
			q.Refusal = newRefusal(m, bourse.RefusedNoAnswer, "no answer within "+within.Round(time.Millisecond).String())
		}
	}
	t.decision.Times.Quote += time.Since(began)
	return quotes
}

// collectQuotes requests quotes from members. It returns the first quote from each member, in the
// same order. The quote of a member that does not answer is the zero value. Quotes from other
// workers, duplicates and late quotes are dropped.
func collectQuotes(ctx context.Context, trader Trader, within time.Duration, order *bourse.Order, members []bourse.Member) []bourse.Quote {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	quotes := make([]bourse.Quote, len(members))
	index := make(map[bourse.WorkerID]int, len(members))
	for i := range members {
		index[members[i].ID] = i
	}
	var mu sync.Mutex // guards quotes and over, because a fabric may deliver quotes late or from several goroutines
	over := false
	trader.Ask(ctx, members, order.ForQuote(), func(q bourse.Quote) {
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

// silent reports whether q was created in place of a missing or invalid answer.
func silent(q *bourse.Quote) bool {
	return q.Refusal != nil && q.Refusal.Reason == bourse.RefusedNoAnswer
}

// checkQuote checks the quote of worker m. It turns an unacceptable quote into a refusal, and sets the sender of a
// refusal to m. The choice contains the regions for which the worker was asked. The region in the quote must be one
// of them; the region in the directory is ignored (invariant 3).
func checkQuote(q *bourse.Quote, m *bourse.Member, order *bourse.Order, choice bourse.Choice) {
	if q.Refusal != nil {
		q.Refusal = sanitize(q.Refusal, m)
		clearFill(q)
		return
	}
	if f := q.Fill(); f != nil {
		// The order is already filled, so a region from any of the order's choices is acceptable.
		if !matchesOrder(f, order, m) || !containsRegion(order.Regions, f.Summary().Region) {
			q.Refusal = invalidAnswer(m, "the fill belongs to another order, worker or region")
			clearFill(q)
		}
		return
	}
	if !slices.Contains(choice, q.Region) {
		q.Refusal = newRefusal(m, bourse.RefusedRegion, "the worker is in region "+bourse.Quoted(string(q.Region)))
		return
	}
	if what := implausible(q); what != "" {
		q.Refusal = invalidAnswer(m, what)
	}
}

// matchesOrder reports whether the fill f matches the order, the order's kind, and worker m. It also
// checks the tags in the IDs: if an ID contained another worker's tag, the caller would operate
// on that worker's objects.
func matchesOrder(f *bourse.Fill, order *bourse.Order, m *bourse.Member) bool {
	if s := f.Summary(); s.Order != order.ID || s.Worker != m.ID || f.Kind() != order.Kind() {
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

func clearFill(q *bourse.Quote) {
	q.Filled, q.FilledVolume, q.FilledTask, q.FilledHold = nil, nil, nil, nil
}

// implausible returns the name of the first implausible value in a willing quote, or "" if all
// values are plausible.
func implausible(q *bourse.Quote) string {
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

func containsRegion(choices []bourse.Choice, r bourse.Region) bool {
	return slices.ContainsFunc(choices, func(c bourse.Choice) bool { return slices.Contains(c, r) })
}

// newRefusal returns a refusal that is recorded on behalf of worker m.
func newRefusal(m *bourse.Member, reason bourse.RefusalReason, detail string) *bourse.Refusal {
	return &bourse.Refusal{Worker: m.ID, Region: m.Region, Reason: reason, Detail: detail}
}

func invalidAnswer(m *bourse.Member, what string) *bourse.Refusal {
	return newRefusal(m, bourse.RefusedNoAnswer, "invalid answer: "+what)
}

// Limits on the parts of a worker's refusal.
const (
	maxDetail = 512
	maxAlso   = 16
	maxWord   = 128
)

// sanitize returns a copy of worker m's refusal that is safe to record. It sets the sender to m,
// shortens long texts and lists, and replaces negative numbers with 0.
func sanitize(r *bourse.Refusal, m *bourse.Member) *bourse.Refusal {
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

// oneLine replaces control characters and format characters in a worker's message with spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}
