package market

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// record records a cancellation that could not be delivered because of cause. It writes the cancellation to the CancellationStore,
// where its worker will find it, if that takes no longer than within, and queues it for retries.
func (s *cancelQueue) record(ctx context.Context, v pendingCancel, within time.Duration, cause error) {
	one := []pendingCancel{v}
	if within > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		s.publish(ctx, one)
	}
	s.add(one[0], cause)
}

// publish writes those of list to the CancellationStore that are not there yet. Rivals are left out: which of two fills has to go is
// not decided before the worker has answered. A failed write is repeated before the next try.
func (s *cancelQueue) publish(ctx context.Context, list []pendingCancel) {
	if s.cfg.Cancellations == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	for i := range list {
		v := &list[i]
		if v.known || v.rival != nil {
			continue
		}
		// The others would fail in the same way.
		if err := s.cfg.Cancellations.RecordCancellation(ctx, v.order, v.at.ID); err != nil {
			s.cfg.Log.Warn("publish cancellation failed", attrs(v, err)...)
			return
		}
		v.known = true
	}
}

// givenUp logs that a cancellation is no longer retried. If its worker will find it in the CancellationStore, nothing is lost.
func (s *cancelQueue) givenUp(v *pendingCancel, why string, cause error) {
	if v.known {
		s.cfg.Log.Info("cancellation left to the view", append(attrs(v, cause), slog.String("why", why))...)
		return
	}
	s.cfg.Log.Error("cancellation given up", append(attrs(v, cause), slog.String("why", why))...)
}

// canceledOn returns the workers that must not keep the order, as far as this process knows.
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

// refuseCanceled turns the quotes of workers that must not keep the order into refusals, and cancels the order there
// again, because an earlier try abandoned them. A worker that has just returned may not know that yet, and would
// destroy the machine that the caller receives.
func (t *trade) refuseCanceled(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) {
	ids, err := t.x.canceledOn(ctx, t.order)
	if err != nil {
		t.x.cfg.Log.Warn("read earlier cancellations failed", slog.String("order", string(t.order.ID)), slog.Any("err", err))
		return
	}
	var undo []*bourse.Member
	for i := range quotes {
		q := &quotes[i]
		if q.Refusal != nil || q.FilledTask != nil || !slices.Contains(ids, members[i].ID) {
			continue // a task that started there keeps its outcome and is not started again
		}
		unfill(q)
		q.Refusal = newRefusal(&members[i], bourse.RefusedCanceled, "an earlier try of the order was canceled there")
		undo = append(undo, &members[i])
	}
	if !t.quoteOnly {
		t.cancelAll(ctx, undo)
	}
}
