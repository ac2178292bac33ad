package market_test

import (
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// worker is a fake worker of a [Cluster]. It has a ledger. Claiming or canceling an order again
// does not change the result.
type worker struct {
	spec Spec
	tag  bourse.WorkerTag

	mu     sync.Mutex
	used   map[bourse.Resource]int64
	orders map[bourse.OrderID]*entry
	lies   *Lies
}

// entry is a worker's record of an order. The first answer to a claim is final. So is a
// cancellation.
type entry struct {
	machine  *bourse.Machine
	hold     *bourse.Hold
	takes    bourse.Amounts
	decision bourse.Decision
	refusal  *bourse.Refusal
	canceled bool
	task     *bourse.TaskResult
	runs     int // number of times that the order's task has run
}

func newWorker(s Spec, tag bourse.WorkerTag) *worker {
	s.Total = slices.Clone(s.Total).Sorted()
	return &worker{spec: s, tag: tag, used: map[bourse.Resource]int64{}, orders: map[bourse.OrderID]*entry{}}
}

func (w *worker) filled(order bourse.OrderID) *bourse.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.orders[order]; e != nil && !e.canceled {
		return e.machine
	}
	return nil
}

func (w *worker) quote(order *bourse.Order) bourse.Quote {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := bourse.Quote{Worker: w.spec.ID, Region: w.spec.Region, Takes: takes(order), Load: w.spec.Load}
	for _, t := range w.spec.Total {
		q.Accounts = append(q.Accounts, bourse.Account{Resource: t.Resource, Total: t.Amount, Used: w.used[t.Resource]})
	}
	for _, e := range w.orders {
		if e.machine != nil && !e.canceled && e.machine.OwnedBy(&order.App) {
			q.AppMachines++
		}
	}
	switch e := w.orders[order.ID]; {
	case e != nil && e.machine != nil && !e.canceled:
		m := *e.machine
		q.Filled = &m
	case e != nil && e.task != nil:
		task := *e.task
		task.Answer = nil
		q.FilledTask = &task
	case e != nil && e.hold != nil && !e.canceled:
		h := *e.hold
		q.FilledHold = &h
	default:
		q.Refusal = w.refuse(order, q.Takes)
	}
	if w.lies != nil && w.lies.Quote != nil {
		w.lies.Quote(&q)
	}
	return q
}

func (w *worker) claim(c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fill, refusal := w.claimHonestly(c)
	if w.lies != nil && w.lies.Claim != nil {
		return w.lies.Claim(fill, refusal, nil)
	}
	return fill, refusal, nil
}

func (w *worker) claimHonestly(c *bourse.Claim) (*bourse.Fill, *bourse.Refusal) {
	order := &c.Order
	if order.Task != nil {
		return w.run(order)
	}
	e := w.orders[order.ID]
	if e != nil && e.machine != nil && !e.canceled {
		return &bourse.Fill{Machine: *e.machine, Repeated: true}, nil
	}
	if e != nil && e.hold != nil && !e.canceled {
		h := *e.hold
		return &bourse.Fill{Hold: &h, Repeated: true}, nil
	}
	if e != nil && e.refusal != nil && !e.canceled {
		return nil, e.refusal
	}
	t := takes(order)
	if r := w.refuse(order, t); r != nil {
		if e == nil {
			w.orders[order.ID] = &entry{refusal: r}
		}
		return nil, r
	}
	for _, a := range t {
		w.used[a.Resource] += a.Amount
	}
	now := time.Now()
	if order.Hold != nil {
		h := bourse.Hold{
			Order: order.ID, Reservation: order.Hold.Reservation, Index: order.Hold.Index, App: order.App.Name, AppID: order.App.ID, Worker: w.spec.ID, Tag: w.tag,
			Region: w.spec.Region, Takes: t, Remaining: t, CreatedAt: now, ExpiresAt: now.Add(time.Duration(order.Hold.TTL)),
		}
		w.orders[order.ID] = &entry{hold: &h, takes: t, decision: c.Decision}
		return &bourse.Fill{Hold: new(h)}, nil
	}
	m := &bourse.Machine{
		ID: bourse.NewMachineID(w.tag), Name: order.Name, App: order.App.Name, AppID: order.App.ID, Worker: w.spec.ID, Region: w.spec.Region, Order: order.ID,
		Instance: bourse.NewInstanceID(), State: bourse.StateStarted, Config: order.Config, Takes: t, CreatedAt: now, UpdatedAt: now,
	}
	w.orders[order.ID] = &entry{machine: m, takes: t, decision: c.Decision}
	return &bourse.Fill{Machine: *m}, nil
}

func (w *worker) cancel(order bourse.OrderID) bourse.Cancellation {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.orders[order]
	if e == nil {
		e = &entry{}
		w.orders[order] = e
	}
	var out bourse.Cancellation
	if e.machine != nil {
		out.Machine = e.machine.ID
	}
	w.undo(e)
	for _, e := range w.orders { // canceling a reservation cancels all of its holds
		if e.hold != nil && e.hold.Reservation.All() == order {
			w.undo(e)
		}
	}
	return out
}

// undo releases the resources that an order has taken. The caller holds the lock.
func (w *worker) undo(e *entry) {
	if !e.canceled {
		for _, a := range e.takes {
			w.used[a.Resource] -= a.Amount
		}
	}
	e.canceled = true
}

func (w *worker) refuse(order *bourse.Order, takes bourse.Amounts) *bourse.Refusal {
	r := bourse.Refusal{Worker: w.spec.ID, Region: w.spec.Region}
	if e := w.orders[order.ID]; e != nil && e.canceled {
		r.Reason, r.Detail = bourse.RefusedCanceled, "the order was canceled"
		return &r
	}
	if h := order.Hold; h != nil {
		if e := w.orders[h.Reservation.All()]; e != nil && e.canceled {
			r.Reason, r.Detail = bourse.RefusedCanceled, "the reservation was released"
			return &r
		}
	}
	if order.Reservation != "" && !w.holds(order.Reservation.Key()) {
		r.Reason, r.Detail = bourse.RefusedReservation, "nothing is held for the reservation"
		return &r
	}
	if !slices.ContainsFunc(order.Regions, func(c bourse.Choice) bool { return slices.Contains(c, w.spec.Region) }) {
		r.Reason, r.Detail = bourse.RefusedRegion, "the worker stands in "+string(w.spec.Region)
		return &r
	}
	for name, want := range order.Config.Requirements {
		if have := w.spec.Labels[name]; want.Count == 0 && have != want.Label {
			r.Reason, r.Resource, r.Detail = bourse.RefusedLabel, name, "label "+name+" is "+bourse.Quoted(have)+" here"
			return &r
		}
	}
	for _, t := range takes {
		if !w.spec.Total.Has(t.Resource) {
			r.Wanted = t.Amount
			r.Reason, r.Resource, r.Detail = bourse.RefusedUnknown, string(t.Resource), "the worker has no "+string(t.Resource)
			return &r
		}
		if free := w.spec.Total.Of(t.Resource) - w.used[t.Resource]; t.Amount > free {
			r.Reason, r.Resource, r.Wanted, r.Free = bourse.RefusedResource, string(t.Resource), t.Amount, max(0, free)
			r.Detail = "too little " + string(t.Resource) + " is free"
			return &r
		}
	}
	return nil
}

func (w *worker) holds(key bourse.ReservationKey) bool {
	for _, e := range w.orders {
		if e.hold != nil && e.hold.Reservation == key && !e.canceled {
			return true
		}
	}
	return false
}

func takes(order *bourse.Order) bourse.Amounts {
	var a bourse.Amounts
	if order.Config.Guest != nil {
		a = order.Config.Guest.Takes(1)
	}
	for name, r := range order.Config.Requirements {
		if r.Count > 0 {
			a = append(a, bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
		}
	}
	if order.Warm() {
		a = append(a, bourse.Amount{Resource: bourse.TaskResource(order.Task.Name), Amount: 1})
	}
	return a.Sorted()
}

// run runs an order's task, which takes no time. The result is final.
func (w *worker) run(order *bourse.Order) (*bourse.Fill, *bourse.Refusal) {
	if e := w.orders[order.ID]; e != nil && e.task != nil {
		return &bourse.Fill{Task: e.task, Repeated: true}, nil
	}
	if r := w.refuse(order, takes(order)); r != nil {
		return nil, r
	}
	e := &entry{runs: 1, task: &bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: w.spec.ID, Region: w.spec.Region, Machine: bourse.NewMachineID(w.tag),
		End: bourse.TaskAnswered, Answer: order.Task.Payload, StartedAt: time.Now(),
	}}
	w.orders[order.ID] = e
	return &bourse.Fill{Task: e.task}, nil
}

// Ran returns how many times the workers have run an order's task.
func (c *Cluster) Ran(order bourse.OrderID) int {
	n := 0
	for _, w := range c.workers {
		w.mu.Lock()
		if e := w.orders[order]; e != nil {
			n += e.runs
		}
		w.mu.Unlock()
	}
	return n
}
