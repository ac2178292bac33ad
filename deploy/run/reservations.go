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

// Lifetime of reservations, and the interval at which they are extended.
const (
	reserveTTL    = time.Minute
	reserveExtend = 20 * time.Second
)

// reservations manages the capacity that is reserved for the machines that a plan creates. All of it is reserved before
// the first step begins. If a single reservation would contain too many orders, several are made.
type reservations struct {
	api      Reservations
	requests *requests
	emit     func(Event)

	mu     sync.Mutex
	ids    []bourse.ReservationID
	byStep map[int]reserved
}

// reserved identifies the capacity that is reserved for a step's machine. An order uses this capacity by naming one of
// the two IDs.
type reserved struct {
	hold  bourse.ReservationID // the step's own hold
	whole bourse.ReservationID // the whole reservation; any of its holds may be used
}

// of returns the ID of the hold or reservation that a step's order must name, or "" if no capacity is reserved for the
// step's machine. The first request names the step's own hold. If all requests named the whole reservation, machines
// that are created concurrently could end up on the same worker. Later requests name the whole reservation, in case the
// worker with the step's own hold does not respond.
func (r *reservations) of(step int, first bool) bourse.ReservationID {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byStep[step]
	if first && at.hold != "" {
		return at.hold
	}
	return at.whole
}

// add records the reservation that was made for a batch, and assigns its holds to the batch's steps.
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
		if workerOf(&p.Steps[step]) != "" && at.hold != "" { // the machine must run on the worker of its own hold
			at.whole = at.hold
		}
		r.byStep[step] = at
	}
}

// workerOf returns the worker that a step's machine must run on, or "" for any worker.
func workerOf(s *deploy.Step) bourse.WorkerID {
	makes, _ := s.Do.(deploy.MakeMachine)
	return makes.Worker
}

// batch contains the orders of one reservation.
type batch struct {
	orders  []machinesapi.ReserveOrder
	count   int
	steps   []int
	orderOf []int // for each element of steps, the index of its order
}

// batches groups the machines that a plan creates into batches of at most limit machines. Equal orders are combined.
// Machines with a volume are omitted, because they are bound to the volume's worker. Machines that are not started
// are omitted, because they do not need capacity yet.
func batches(p *deploy.Plan, limit int) []batch {
	var out []batch
	equal := map[string]int{} // indexes of the last batch's orders, by JSON
	for i := range p.Steps {
		s := &p.Steps[i]
		makes, _ := s.Do.(deploy.MakeMachine)
		c := s.Makes()
		if c == nil || makes.Stopped || len(c.Mounts) > 0 {
			continue
		}
		if len(out) == 0 || out[len(out)-1].count == limit {
			out = append(out, batch{})
			clear(equal)
		}
		b := &out[len(out)-1]
		config := &bourse.Config{
			Image: c.Image, Guest: c.Guest, Size: c.Size, Requirements: c.Requirements, Rootfs: c.Rootfs, Runtime: c.Runtime, AllowEmulation: c.AllowEmulation, Init: c.Init,
		}
		if makes.Worker != "" {
			config.Requirements = c.Requirements.On(makes.Worker)
		}
		if former := s.Replaces(); former != "" { // do not count the replaced machine in the spread score
			config.Metadata = map[string]string{deploy.KeyReplaces: string(former)}
		}
		order := machinesapi.ReserveOrder{App: p.App, Region: string(s.Region), Config: config}
		key, _ := json.Marshal(order) // orders can always be marshaled
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

// hold reserves capacity for the machines that a plan creates, if the plan requires this.
func (r *reservations) hold(ctx context.Context, p *deploy.Plan) error {
	if !p.Reserve {
		return nil
	}
	for _, b := range batches(p, bourse.MaxReservedOrders) {
		in := machinesapi.CreateReservation{ID: bourse.NewReservationKey(), Orders: b.orders, TTLSeconds: new(int64(reserveTTL / time.Second))}
		var held machinesapi.Reservation
		err := r.requests.repeat(ctx, repeatableRequest{step: WholeRun, limit: orderTimeout}, func(ctx context.Context, _ bool) (err error) {
			held, err = r.api.Reserve(ctx, in)
			return err
		})
		if err != nil {
			return prefixError("reserve the capacity of the whole plan", err)
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

// keep extends the reservations until ctx is done.
func (r *reservations) keep(ctx context.Context) {
	for sleep(ctx, reserveExtend) == nil {
		for _, id := range r.list() {
			err := r.requests.request(ctx, 0, requestTimeout, func(ctx context.Context) error {
				_, err := r.api.Extend(ctx, id, machinesapi.ExtendReservation{TTLSeconds: new(int64(reserveTTL / time.Second))})
				return err
			})
			if err != nil && ctx.Err() == nil { // without the reservation, later orders may be refused
				r.emit(Event{Step: WholeRun, State: Waiting, Text: "the reservation could not be extended: " + bourse.MessageOf(err)})
			}
		}
	}
}

// release ends all reservations, which frees the capacity that no machine has used. A reservation that cannot be
// ended expires.
func (r *reservations) release(ctx context.Context) {
	for _, id := range r.list() {
		_ = r.requests.repeat(ctx, repeatableRequest{step: WholeRun, limit: requestTimeout}, func(ctx context.Context, _ bool) error {
			return r.api.EndReservation(ctx, id)
		})
	}
}
