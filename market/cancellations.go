package market

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// record writes a cancellation that could not be delivered to the CancellationStore, where its
// worker will find it. The parameter within limits the duration of the write. record also adds the
// cancellation to the queue of retries.
func (s *cancelQueue) record(ctx context.Context, v pendingCancel, within time.Duration, cause error) {
	one := []pendingCancel{v}
	if within > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		s.publish(ctx, one)
	}
	s.add(one[0], cause)
}

// publish writes the cancellations in list to the CancellationStore, unless they are there already.
// It omits cancellations with a competing fill, because it is not known which of the two fills must be
// canceled until the worker has answered. If a write fails, publish logs the failure and returns.
// The write is repeated before the next delivery.
func (s *cancelQueue) publish(ctx context.Context, list []pendingCancel) {
	if s.cfg.Cancellations == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	for i := range list {
		v := &list[i]
		if v.known || v.competing != nil {
			continue
		}
		// If this write fails, the remaining writes would fail the same way.
		if err := s.cfg.Cancellations.RecordCancellation(ctx, v.order, v.at.ID); err != nil {
			s.cfg.Log.Warn("publish cancellation failed", attrs(v, err)...)
			return
		}
		v.known = true
	}
}

// logAbandoned logs that a cancellation is no longer retried. If the cancellation is in the
// CancellationStore, its worker will find it there, and nothing is lost.
func (s *cancelQueue) logAbandoned(v *pendingCancel, why string, cause error) {
	if v.known {
		s.cfg.Log.Info("cancellation handed to view", append(attrs(v, cause), slog.String("why", why))...)
		return
	}
	s.cfg.Log.Error("cancellation retries stopped", append(attrs(v, cause), slog.String("why", why))...)
}

// canceledOn returns the workers on which the order is known to be canceled, so that they must not keep it.
func (x *Exchange) canceledOn(ctx context.Context, order *bourse.Order) ([]bourse.WorkerID, error) {
	if x.cfg.Cancellations == nil {
		return nil, nil
	}
	ids, err := x.cfg.Cancellations.CanceledOn(ctx, order.ID)
	if h := order.Hold; h != nil && err == nil {
		var all []bourse.WorkerID
		all, err = x.cfg.Cancellations.CanceledOn(ctx, h.Reservation.All())
		ids = slices.Concat(ids, all)
	}
	return ids, err
}

// refuseCanceled turns the quotes of workers that must not keep the order into refusals, because an
// earlier try has canceled the order there. It also sends these workers the cancellation again,
// because a worker that has just returned may not have received it yet. If such a worker's fill
// counted, the caller would receive a machine that the worker later destroys.
func (t *trade) refuseCanceled(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) {
	ids, err := t.exchange.canceledOn(ctx, t.order)
	if err != nil {
		t.exchange.cfg.Log.Warn("read earlier cancellations failed", slog.String("order", string(t.order.ID)), slog.Any("err", err))
		return
	}
	var undo []*bourse.Member
	for i := range quotes {
		q := &quotes[i]
		if q.Refusal != nil || q.FilledTask != nil || !slices.Contains(ids, members[i].ID) {
			continue // a task that has started on the worker keeps its outcome, and must not be started again
		}
		clearFill(q)
		q.Refusal = newRefusal(&members[i], bourse.RefusedCanceled, "an earlier try of the order was canceled there")
		undo = append(undo, &members[i])
	}
	if !t.quoteOnly {
		t.cancelAll(ctx, undo)
	}
}
