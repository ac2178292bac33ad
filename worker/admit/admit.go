// Package admit decides whether a worker fills an order: which resources the order
// takes, what the worker chooses for it, and why it is refused.
//
// [Host.Decide] decides about all orders except those for warm tasks, as a function of
// the order, one state of the store, and the host's ports and pollers. A quote contains
// the decision. A claim makes most of it in a read, see [Host.Precheck], and then all of
// it in the transaction that takes the resources. Capacity is therefore never oversold
// (invariant 4), and a refusal names the worker, the resources, and how much was wanted
// and free (invariant 10). Package tasks makes the decision about a warm task, which
// depends on the places of warm machines, from the same parts: [Host.UnsupportedTask],
// [Past], [Host.Barred] and [Host.Fits].
//
// A decision writes nothing. Apart from the store, it asks only those parts of the host
// that answer within microseconds. [Holds] are the exception: an order to hold capacity
// needs nothing but records, so this package also fills it.
package admit

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// Host describes a worker to the decisions about its orders. All fields except Labels
// and Tries are fixed once the worker is open.
type Host struct {
	Worker bourse.WorkerID
	Tag    bourse.WorkerTag
	Region bourse.Region

	Ledger  Ledger
	Ports   PortRange           // of $PORT
	Devices map[string][]string // names of the devices by kind of GPU; kinds without names are only counted
	Drivers []string            // kinds of images that run here
	Labels  atomic.Pointer[Labels]
	Tries   Tries
	Load    func() float64 // of the host; see [bourse.Quote]
	Short   func() error   // why the store accepts nothing new, nil if it does; see [store.Store.Short]

	Private      map[bourse.ImageKind]bool            // kinds of images whose machines have private networks
	NoNetwork    error                                // why machines with images cannot have their networks; nil if they can, or need none
	Images       Images                               // nil if the worker has none
	ImageBudget  bourse.MiB                           // for all images together
	Containers   func() error                         // why the driver of images runs nothing now, nil if it does
	Scratch      bool                                 // root file systems can be limited
	VolumeLabels map[string]string                    // nil if the worker has no volumes
	Peers        bool                                 // other workers' volumes can be read
	Pollers      func(*bourse.Config) *bourse.Refusal // why no poller would claim such a machine now; nil if the worker has no pollers
}

// Images reports what is known of images without asking a registry.
type Images interface {
	// Missing returns how many bytes would have to be pulled before an organization
	// could run an image. known is false if the image was never shown to it.
	Missing(org, name string) (bytes int64, known bool)
}

// Labels holds a worker's labels. Those that a machine may rely on differ by the
// driver that runs it.
type Labels struct {
	Of  map[bourse.ImageKind]map[string]string
	All map[string]string // as published; those of host images where they differ
}

// Labels of a host's features.
const (
	LabelVolume    = "volume"
	LabelDiskLimit = "limit.disk" // how a root file system's limit is enforced
	// labelRuntime is the prefix of the labels that name a driver's runtimes.
	labelRuntime = "runtime."
)

// Quote answers an order with a decision that holds nothing. It must not be a warm
// task's order, see [Host.NewQuote].
func (h *Host) Quote(ctx context.Context, s *store.Store, order *bourse.Order) (bourse.Quote, error) {
	q, err := h.NewQuote(ctx, s, order)
	if err != nil {
		return q, err
	}
	err = s.View(func(tx *store.Tx) error {
		now := time.Now()
		d, err := h.Decide(tx, order, now)
		q.Refusal, q.Held = d.Refusal, d.Held
		switch {
		case err != nil:
			return err
		case d.Fill != nil:
			showFill(&q, d.Fill)
			return nil
		case d.Refusal == nil:
			q.Takes, q.Accounts = d.Takes, h.Ledger.Accounts(d.Committed)
		}
		if order.Kind() != bourse.KindVolume {
			q.MissingBytes = h.missing(order)
			q.AppMachines, err = appMachines(tx, order, now)
		}
		return err
	})
	return q, err
}

// showFill adds what fills an order already to a quote.
func showFill(q *bourse.Quote, f *bourse.Fill) {
	switch f.Kind() {
	case bourse.KindMachine:
		q.Filled = &f.Machine
	case bourse.KindVolume:
		q.FilledVolume = f.Volume
	case bourse.KindHold:
		q.FilledHold = f.Hold
	case bourse.KindTask:
		task := *f.Task
		task.Answer = nil
		q.FilledTask = &task
	}
}

// appMachines counts the machines from which an order's machine is kept apart: those of
// its app and, for an order to hold capacity, those that its reservation still holds
// capacity for.
func appMachines(tx *store.Tx, order *bourse.Order, now time.Time) (int, error) {
	n := tx.CountMachines(order.App)
	if order.Hold == nil {
		return n, nil
	}
	holds, err := liveHolds(tx, order.Hold.Reservation, &order.App, now)
	for i := range holds {
		n += min(len(holds[i].Left), 1)
	}
	return n, err
}

// NewQuote returns a quote without an answer. An order that may be a repetition may
// have been filled a moment ago, so NewQuote waits for everything that was submitted
// to the store.
func (h *Host) NewQuote(ctx context.Context, s *store.Store, order *bourse.Order) (bourse.Quote, error) {
	h.Tries.Asked(order)
	q := bourse.Quote{Worker: h.Worker, Region: h.Region, Load: h.Load()}
	if order.Named {
		return q, s.Sync(ctx)
	}
	return q, nil
}

// Fits returns why nothing new that takes so much can begin here, nil if it can: the
// ledger's refusal, or that the store reserves its remaining space for the ends of
// what exists.
func (h *Host) Fits(committed, takes bourse.Amounts) *bourse.Refusal {
	if err := h.Short(); err != nil {
		return h.By(&bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)})
	}
	return h.Ledger.Fits(committed, takes)
}

// Room returns why something that takes has cannot take wants instead, nil if it can.
// Resources of which it does not want more are not checked: they fit even after the
// operator has lowered the worker's capacity.
func (h *Host) Room(tx *store.Tx, has, wants bourse.Amounts) (*bourse.Refusal, error) {
	more := slices.DeleteFunc(slices.Clone(wants), func(a bourse.Amount) bool { return a.Amount <= has.Of(a.Resource) })
	if len(more) == 0 {
		return nil, nil
	}
	committed, err := tx.CommittedAt(time.Now())
	if err != nil {
		return nil, err
	}
	return h.By(h.Ledger.Fits(less(committed, has), more)), nil
}

// By adds the worker to a refusal, if there is one.
func (h *Host) By(r *bourse.Refusal) *bourse.Refusal {
	if r != nil {
		r.Worker, r.Region = h.Worker, h.Region
	}
	return r
}

// Refusal returns a refusal by this worker.
func (h *Host) Refusal(reason bourse.RefusalReason, detail string) *bourse.Refusal {
	return h.By(&bourse.Refusal{Reason: reason, Detail: detail})
}

// Answer returns the answer to a claim that failed with err before it was recorded: what
// fills the order already, a refusal, or err if it is neither. Later errors must not
// become refusals, because a refused order is filled on another worker.
func (h *Host) Answer(err error) (*bourse.Fill, *bourse.Refusal, error) {
	if d, ok := errors.AsType[Declined](err); ok {
		return d.Fill, d.Refusal, nil
	}
	if bourse.CodeOf(err) == bourse.CodeUnavailable { // the disk is full, or worse: nothing was recorded
		return nil, h.Refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	}
	return nil, nil, err
}
