package market

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// record records a cancellation that could not be delivered. It writes the cancellation to the CancellationStore, where
// the worker will find it, and adds it to the queue of retries. timeout limits the duration of the write; if it is not
// positive, nothing is written.
func (s *cancelQueue) record(ctx context.Context, v pendingCancel, timeout time.Duration, cause error) {
	one := []pendingCancel{v}
	if timeout > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		s.publish(ctx, one)
	}
	s.add(one[0], cause)
}

// publish writes the cancellations in list to the CancellationStore, unless they are there already. It omits
// cancellations with a competing fill, because only the worker's answer will determine which of the two fills must be
// canceled. If a write fails, publish logs the failure and returns. The write is repeated before the next delivery.
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

// logAbandoned logs that retries of a cancellation have stopped. If the cancellation is in the
// CancellationStore, the worker will find it there, and nothing is lost.
func (s *cancelQueue) logAbandoned(v *pendingCancel, why string, cause error) {
	if v.known {
		s.cfg.Log.Info("cancellation no longer retried, stored in view", append(attrs(v, cause), slog.String("why", why))...)
		return
	}
	s.cfg.Log.Error("cancellation retries stopped", append(attrs(v, cause), slog.String("why", why))...)
}

// canceledOn returns the workers on which the order is known to have been canceled. A fill by such a worker must not
// be used.
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

// refuseCanceled turns a worker's quote into a refusal if an earlier attempt has canceled the order on that worker.
// Otherwise, the caller could receive a machine that the worker later destroys. refuseCanceled also sends the
// cancellation again, because a worker that has just returned may not have received it yet.
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
		q.Refusal = newRefusal(&members[i], bourse.RefusedCanceled, "the order was canceled there earlier")
		undo = append(undo, &members[i])
	}
	if !t.quoteOnly {
		t.cancelAll(ctx, undo)
	}
}
