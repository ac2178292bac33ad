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

// How long capacity is held, and how often that is extended.
const (
	roomTTL    = time.Minute
	roomExtend = 20 * time.Second
)

// rooms are the reservations of a run: the capacity of all that its plan makes, held
// before the first step. There are several where one may not have so many orders.
type rooms struct {
	r *runner

	mu     sync.Mutex
	ids    []bourse.ReservationID
	byStep map[int]room
}

// room is what is held for a step's machine.
type room struct {
	hold  bourse.ReservationID // where it is held
	whole bourse.ReservationID // wherever the reservation holds something
}

func newRooms(r *runner) *rooms { return &rooms{r: r, byStep: map[int]room{}} }

// of returns the reservation from which a step's machine takes, "" for none. First it is asked for where
// its capacity is held: those that are made at the same time would not know of each other, and could all be
// made on one worker. When that worker does not answer, others that hold something are as good.
func (o *rooms) of(step int, first bool) bourse.ReservationID {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.byStep[step]; !first || r.hold == "" {
		return r.whole
	}
	return o.byStep[step].hold
}

// note notes what is held for a batch's steps.
func (o *rooms) note(b *batch, held *machinesapi.Reservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = append(o.ids, held.ID)
	for i, step := range b.steps {
		at := room{whole: held.ID}
		if n := slices.IndexFunc(held.Holds, func(h machinesapi.Hold) bool { return h.Order == b.orderOf[i] }); n >= 0 {
			at.hold = held.Holds[n].ID
			held.Holds = slices.Delete(held.Holds, n, n+1)
		}
		if o.r.plan.Steps[step].On != "" && at.hold != "" { // no other is as good
			at.whole = at.hold
		}
		o.byStep[step] = at
	}
}

// batch is what one reservation is asked for.
type batch struct {
	orders  []machinesapi.ReserveOrder
	count   int
	steps   []int
	orderOf []int // the index in orders of each step
}

// batches puts the orders of a plan together: those that are alike are one with a count.
// Machines that mount a volume have its worker, and those that are not started take nothing.
func batches(p *deploy.Plan, most int) []batch {
	var out []batch
	alike := map[string]int{} // indexes of the last batch's orders
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Do != deploy.MakeMachine && s.Do != deploy.RunCommand || s.Stopped || len(s.Config.Mounts) > 0 {
			continue
		}
		if len(out) == 0 || out[len(out)-1].count == most {
			out = append(out, batch{})
			clear(alike)
		}
		b := &out[len(out)-1]
		config := &bourse.Config{
			Image: s.Config.Image, Guest: s.Config.Guest, Size: s.Config.Size, Requirements: s.Config.Requirements,
			Rootfs: s.Config.Rootfs, Runtime: s.Config.Runtime, Init: s.Config.Init,
		}
		if s.On != "" {
			config.Requirements = s.Config.Requirements.On(s.On)
		}
		if former := s.Config.Metadata[deploy.KeyReplaces]; former != "" { // where that is counts for where this one is to be
			config.Metadata = map[string]string{deploy.KeyReplaces: former}
		}
		order := machinesapi.ReserveOrder{App: p.App, Region: string(s.In), Config: config}
		key, _ := json.Marshal(order) // of types that always encode
		at, there := alike[string(key)]
		if !there {
			at = len(b.orders)
			alike[string(key)] = at
			order.Count = new(int64(0))
			b.orders = append(b.orders, order)
		}
		*b.orders[at].Count++
		b.count++
		b.steps, b.orderOf = append(b.steps, i), append(b.orderOf, at)
	}
	return out
}

// hold holds what the plan's steps take, all of it or none.
func (o *rooms) hold(ctx context.Context) error {
	if !o.r.plan.Reserve {
		return nil
	}
	for _, b := range batches(o.r.plan, bourse.MaxReservedOrders) {
		in := machinesapi.CreateReservation{ID: bourse.NewReservationKey(), Orders: b.orders, TTLSeconds: new(int64(roomTTL / time.Second))}
		var held machinesapi.Reservation
		err := o.r.again(ctx, try{step: Whole, limit: orderWithin}, func(ctx context.Context, _ bool) (err error) {
			held, err = o.r.api.Reserve(ctx, in)
			return err
		})
		if err != nil {
			return because("hold the capacity of the whole plan", err)
		}
		o.note(&b, &held)
	}
	return nil
}

func (o *rooms) list() []bourse.ReservationID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]bourse.ReservationID{}, o.ids...)
}

// keep extends what is held until ctx ends.
func (o *rooms) keep(ctx context.Context) {
	for rest(ctx, roomExtend) == nil {
		for _, id := range o.list() {
			err := o.r.request(ctx, 0, quick, func(ctx context.Context) error {
				_, err := o.r.api.Extend(ctx, id, machinesapi.ExtendReservation{TTLSeconds: new(int64(roomTTL / time.Second))})
				return err
			})
			if err != nil && ctx.Err() == nil { // what is lost, steps find out: they are refused
				o.r.emit(Event{Step: Whole, State: Waiting, Text: "capacity could not be held longer: " + bourse.MessageOf(err)})
			}
		}
	}
}

// release gives back what no machine has taken. What is not released ends by itself.
func (o *rooms) release(ctx context.Context) {
	for _, id := range o.list() {
		_ = o.r.again(ctx, try{step: Whole, limit: quick}, func(ctx context.Context, _ bool) error {
			return o.r.api.EndReservation(ctx, id)
		})
	}
}
