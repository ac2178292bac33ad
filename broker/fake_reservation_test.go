package broker_test

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Reserve holds capacity for each order on the next worker in its regions with free capacity. If there is none for one
// of the orders, Reserve holds nothing.
func (c *cluster) Reserve(_ context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, orders...)
	key := orders[0].Hold.Reservation
	holds := make([]bourse.Hold, len(orders))
	for i := range orders {
		order := &orders[i]
		d := bourse.Decision{Order: order.ID, Outcome: bourse.OutcomeRefused, Rounds: []bourse.Round{{}}}
		if c.placeErr != nil {
			return nil, d, c.placeErr
		}
		for n := range c.members {
			m := c.members[(i+n)%len(c.members)]
			w := c.workers[m.ID]
			if !slices.ContainsFunc(order.Regions, func(choice bourse.Choice) bool { return slices.Contains(choice, m.Region) }) {
				continue
			}
			if w.full {
				d.Rounds[0].Refusals = append(d.Rounds[0].Refusals, bourse.Refusal{Worker: m.ID, Reason: bourse.RefusedResource, Resource: "memory", Wanted: 256, Free: 8})
				continue
			}
			now := time.Now().UTC()
			holds[i] = bourse.Hold{
				Order: order.ID, Reservation: key, Index: order.Hold.Index, App: order.App.Name, AppID: order.App.ID, Worker: m.ID, Tag: m.Tag, Region: m.Region,
				Takes: order.Config.Guest.Takes(1), Remaining: order.Config.Guest.Takes(1), CreatedAt: now, ExpiresAt: now.Add(time.Duration(order.Hold.TTL)),
			}
			break
		}
		if holds[i].Worker == "" {
			return nil, d, bourse.Errorf(bourse.CodeInsufficient, "no worker has capacity")
		}
	}
	for _, h := range holds {
		w := c.workers[h.Worker]
		w.mu.Lock()
		if !slices.ContainsFunc(w.holds[key], func(x bourse.Hold) bool { return x.Order == h.Order }) {
			w.holds[key] = append(w.holds[key], h)
		}
		w.mu.Unlock()
	}
	return holds, bourse.Decision{}, nil
}

func (w *worker) held(key bourse.ReservationKey) ([]bourse.Hold, error) {
	if len(w.holds[key]) == 0 {
		return nil, bourse.Errorf(bourse.CodeNotFound, "nothing is held")
	}
	return slices.Clone(w.holds[key]), nil
}

func (w *worker) handleReservations() {
	handle(w, &fabric.ReservationShow, w.held)
	handle(w, &fabric.ReservationList, func(struct{}) ([]bourse.Hold, error) {
		out := []bourse.Hold{}
		for _, holds := range w.holds {
			out = append(out, holds...)
		}
		return out, nil
	})
	handle(w, &fabric.ReservationExtend, func(e fabric.ExtendHolds) ([]bourse.Hold, error) {
		for i := range w.holds[e.Reservation] {
			w.holds[e.Reservation][i].ExpiresAt = time.Now().UTC().Add(time.Duration(e.TTL))
		}
		return w.held(e.Reservation)
	})
	handle(w, &fabric.ReservationRelease, func(key bourse.ReservationKey) (struct{}, error) {
		delete(w.holds, key)
		return struct{}{}, nil
	})
}
