package run

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// The lifetime of reservations, and the time between two extensions.
const (
	reserveTTL    = time.Minute
	reserveExtend = 20 * time.Second
)

// reservations hold the capacity of all machines that a plan makes, from before the first step. There are several if
// one would have too many orders.
type reservations struct {
	api      Reservations
	requests *requests
	emit     func(Event)

	mu     sync.Mutex
	ids    []bourse.ReservationID
	byStep map[int]reserved
}

// reserved is the capacity for a step's machine.
type reserved struct {
	hold  bourse.ReservationID // the hold for this step
	whole bourse.ReservationID // any hold of the reservation
}

// of returns the reservation for a step's machine, "" if there is none. The first request names the step's own hold:
// machines that are made at the same time do not know of each other, and could otherwise all end up on one worker. If
// the worker of that hold does not answer, any other hold will do.
func (r *reservations) of(step int, first bool) bourse.ReservationID {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byStep[step]
	if first && at.hold != "" {
		return at.hold
	}
	return at.whole
}

// add records the reservation of a batch.
func (r *reservations) add(p *deploy.Plan, b *batch, held *machinesapi.Reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, held.ID)
	for i, step := range b.steps {
		at := reserved{whole: held.ID}
		if n := slices.IndexFunc(held.Holds, func(h machinesapi.Hold) bool { return h.Order == b.orderOf[i] }); n >= 0 {
			at.hold = held.Holds[n].ID
			held.Holds = slices.Delete(held.Holds, n, n+1)
		}
		if workerOf(&p.Steps[step]) != "" && at.hold != "" { // no other hold will do
			at.whole = at.hold
		}
		r.byStep[step] = at
	}
}

// workerOf returns the worker that a step's machine must run on, "" for any.
func workerOf(s *deploy.Step) bourse.WorkerID {
	makes, _ := s.Do.(deploy.MakeMachine)
	return makes.Worker
}

// batch is the contents of one reservation.
type batch struct {
	orders  []machinesapi.ReserveOrder
	count   int
	steps   []int
	orderOf []int // the index in orders of each step
}

// batches groups the machines of a plan into reservations of at most so many. Equal orders are combined. Machines that
// mount a volume are bound to its worker, and stopped machines take no capacity.
func batches(p *deploy.Plan, most int) []batch {
	var out []batch
	equal := map[string]int{} // indexes of the last batch's orders
	for i := range p.Steps {
		s := &p.Steps[i]
		makes, _ := s.Do.(deploy.MakeMachine)
		c := s.Makes()
		if c == nil || makes.Stopped || len(c.Mounts) > 0 {
			continue
		}
		if len(out) == 0 || out[len(out)-1].count == most {
			out = append(out, batch{})
			clear(equal)
		}
		b := &out[len(out)-1]
		config := &bourse.Config{
			Image: c.Image, Guest: c.Guest, Size: c.Size, Requirements: c.Requirements, Rootfs: c.Rootfs, Runtime: c.Runtime, Init: c.Init,
		}
		if makes.Worker != "" {
			config.Requirements = c.Requirements.On(makes.Worker)
		}
		if former := s.Replaces(); former != "" { // its place counts for the place of the new one
			config.Metadata = map[string]string{deploy.KeyReplaces: string(former)}
		}
		order := machinesapi.ReserveOrder{App: p.App, Region: string(s.Region), Config: config}
		key, _ := json.Marshal(order) // orders can always be encoded
		at, there := equal[string(key)]
		if !there {
			at = len(b.orders)
			equal[string(key)] = at
			order.Count = new(int64(0))
			b.orders = append(b.orders, order)
		}
		*b.orders[at].Count++
		b.count++
		b.steps, b.orderOf = append(b.steps, i), append(b.orderOf, at)
	}
	return out
}

// hold reserves the capacity for all of a plan's steps, if the plan asks for that.
func (r *reservations) hold(ctx context.Context, p *deploy.Plan) error {
	if !p.Reserve {
		return nil
	}
	for _, b := range batches(p, bourse.MaxReservedOrders) {
		in := machinesapi.CreateReservation{ID: bourse.NewReservationKey(), Orders: b.orders, TTLSeconds: new(int64(reserveTTL / time.Second))}
		var held machinesapi.Reservation
		err := r.requests.repeat(ctx, try{step: Whole, limit: orderWithin}, func(ctx context.Context, _ bool) (err error) {
			held, err = r.api.Reserve(ctx, in)
			return err
		})
		if err != nil {
			return because("reserve the capacity of the whole plan", err)
		}
		r.add(p, &b, &held)
	}
	return nil
}

func (r *reservations) list() []bourse.ReservationID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// keep extends the reservations until ctx ends.
func (r *reservations) keep(ctx context.Context) {
	for rest(ctx, reserveExtend) == nil {
		for _, id := range r.list() {
			err := r.requests.once(ctx, 0, quick, func(ctx context.Context) error {
				_, err := r.api.Extend(ctx, id, machinesapi.ExtendReservation{TTLSeconds: new(int64(reserveTTL / time.Second))})
				return err
			})
			if err != nil && ctx.Err() == nil { // if it is lost, the orders of steps are refused
				r.emit(Event{Step: Whole, State: Waiting, Text: "the reservation could not be extended: " + bourse.MessageOf(err)})
			}
		}
	}
}

// release releases the capacity that no machine has taken. Otherwise it expires.
func (r *reservations) release(ctx context.Context) {
	for _, id := range r.list() {
		_ = r.requests.repeat(ctx, try{step: Whole, limit: quick}, func(ctx context.Context, _ bool) error {
			return r.api.EndReservation(ctx, id)
		})
	}
}
