package market

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// currentRound returns the latest round of the decision.
func (t *trade) currentRound() *bourse.Round { return &t.decision.Rounds[len(t.decision.Rounds)-1] }

// refused records a refusal that a worker sent instead of a quote.
func (t *trade) refused(r bourse.Refusal) {
	t.refusals.add(r)
	if round := t.currentRound(); len(round.Refusals) < bourse.MaxRecorded {
		round.Refusals = append(round.Refusals, r)
	}
}

// claimed records a claim. If the worker filled the order, the claim has no
// refusal.
func (t *trade) claimed(try bourse.ClaimAttempt) {
	if try.Refusal != nil {
		t.refusals.claimed(*try.Refusal, t.order)
	}
	if round := t.currentRound(); len(round.Claims) < bourse.MaxRecorded {
		round.Claims = append(round.Claims, try)
	}
}

// claimRequest returns the claim that is sent to a worker. It contains the current decision, which
// the worker records. The rounds are copied, because this trade will change them.
func (t *trade) claimRequest() *bourse.Claim {
	t.claim.Order, t.claim.AppKeys = *t.order, t.order.AppKeys
	if t.order.Kind() == bourse.KindTask { // the worker does not record the decision about a task, only the task's outcome
		return &t.claim
	}
	t.claim.Decision = t.decision
	t.claim.Decision.Rounds = slices.Clone(t.decision.Rounds)
	return &t.claim
}

// finish adds the order's outcome to the decision.
func (t *trade) finish(fill *bourse.Fill, err error) {
	d := &t.decision
	d.Times.Total = time.Since(d.At)
	if err != nil {
		d.Message = bourse.MessageOf(err)
	}
	switch code := bourse.CodeOf(err); {
	case fill != nil:
		d.Worker, d.Machine = fill.Summary().Worker, fill.Machine.ID
		if fill.Volume != nil {
			d.Volume = fill.Volume.ID
		}
		if fill.Task != nil {
			d.Machine = fill.Task.Machine
		}
		d.Outcome = bourse.OutcomeFilled
		if t.quoteOnly {
			d.Outcome = bourse.OutcomeQuoted
		}
	case err == nil:
		d.Outcome = bourse.OutcomeQuoted
	case code == bourse.CodeTimeout:
		d.Outcome = bourse.OutcomeTimeout
	case code == bourse.CodeCanceled:
		d.Outcome = bourse.OutcomeCanceled
	default:
		d.Outcome = bourse.OutcomeRefused
	}
}
