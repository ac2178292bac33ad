// Package admit decides whether a worker fills an order, which resources the order takes,
// and which port and devices its machine gets. If the worker does not fill the order, the
// decision contains the reason.
//
// [Host.Decide] decides about all orders except those for warm tasks. The decision is a function of the order, a
// snapshot of the store, and the state of the host's ports and pollers. A quote contains the decision. A claim first
// checks most of the conditions in a read-only transaction (see [Host.Precheck]), and then decides again in the
// transaction that takes the resources. Capacity is therefore never oversold (invariant 4), and a refusal names the
// worker, the resources, the amounts requested and the amounts free (invariant 10). A warm task also needs a free slot
// on a warm machine, so package tasks makes that decision, using the same functions: [Host.UnsupportedTask], [History],
// [Host.CheckConditions] and [Host.Fits].
//
// A decision does not write anything. Apart from the store, it consults only parts of the host that answer within
// microseconds. Only [Holds] writes to the store, because writing records is all it takes to fill an order that holds
// capacity.
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

// Host contains the information about a worker and its host that is needed to decide about orders. All fields except
// Labels and Tries are fixed once the worker is open.
type Host struct {
	Worker bourse.WorkerID
	Tag    bourse.WorkerTag
	Region bourse.Region

	Ledger     Ledger
	Ports      PortRange           // ports that machines may get as $PORT
	Devices    map[string][]string // device names by GPU kind, for kinds whose devices have names
	Drivers    []string            // kinds of images that this worker can run
	Labels     atomic.Pointer[Labels]
	Tries      Tries
	Load       func() float64 // returns the host's load, as in [bourse.Quote]
	SpaceError func() error   // returns an error while the store does not accept new work; see [store.Store.SpaceError]

	Private      map[bourse.ImageKind]bool            // kinds of images whose machines have private networks
	NoNetwork    error                                // the reason why machines with images cannot have private networks; nil if they can
	Images       Images                               // nil if the worker cannot run images
	ImageBudget  bourse.MiB                           // disk space for all images together
	Containers   func() error                         // returns why the container driver cannot run anything now, or nil if it can
	Scratch      bool                                 // whether root file systems can be limited
	VolumeLabels map[string]string                    // nil if the worker does not support volumes
	Peers        bool                                 // whether the worker can read other workers' volumes
	Pollers      func(*bourse.Config) *bourse.Refusal // returns why no poller would claim a machine with this config now, or nil if one would; the function may be unset
}

// Images provides information about images without contacting a registry.
type Images interface {
	// Missing returns how many bytes the worker would have to pull to run the image for the
	// organization. known is false if the worker has not resolved the image for that organization.
	Missing(org, name string) (bytes int64, known bool)
}

// Labels holds a worker's labels. The labels that a machine may require depend on its driver.
type Labels struct {
	ByKind map[bourse.ImageKind]map[string]string
	All    map[string]string // labels that the worker publishes; if drivers set the same label, the host-image driver wins
}

// Labels that describe a host's features.
const (
	LabelVolume    = "volume"
	LabelDiskLimit = "limit.disk" // how a root file system's limit is enforced
	// labelRuntime is the prefix of the labels that name a driver's runtimes.
	labelRuntime = "runtime."
)

// Quote returns a worker's answer to an order, without reserving anything. The order must not be
// for a warm task; package tasks answers such orders.
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
			addFill(&q, d.Fill)
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

// addFill adds to a quote the machine, volume, hold or task that already fills the order on this worker.
func addFill(q *bourse.Quote, f *bourse.Fill) {
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

// appMachines returns the number of machines for the order's spread score: the app's machines and, if the order holds
// capacity, also the reservation's holds for the app that still have capacity left.
func appMachines(tx *store.Tx, order *bourse.Order, now time.Time) (int, error) {
	n := tx.CountMachines(order.App)
	if order.Hold == nil {
		return n, nil
	}
	holds, err := liveHolds(tx, order.Hold.Reservation, &order.App, now)
	for i := range holds {
		n += min(len(holds[i].Remaining), 1)
	}
	return n, err
}

// NewQuote returns a quote that contains only the worker's name, region and load. If the order may be a repeat,
// NewQuote first waits until everything submitted to the store is durable, because this worker may have filled the
// order a moment ago.
func (h *Host) NewQuote(ctx context.Context, s *store.Store, order *bourse.Order) (bourse.Quote, error) {
	h.Tries.Asked(order)
	q := bourse.Quote{Worker: h.Worker, Region: h.Region, Load: h.Load()}
	if order.HasChosenID {
		return q, s.Sync(ctx)
	}
	return q, nil
}

// Fits returns a refusal if the ledger has no room for the requested amounts in addition to the committed ones, or if
// the store is so short of disk space that it does not accept new work. Otherwise, it returns nil.
func (h *Host) Fits(committed, requested bourse.Amounts) *bourse.Refusal {
	if err := h.SpaceError(); err != nil {
		return h.FromThisWorker(&bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)})
	}
	return h.Ledger.Fits(committed, requested)
}

// CheckRoom returns a refusal if the ledger has no room to change a machine's amounts from current to desired, and nil
// otherwise. It checks only the resources whose amounts increase, so a machine may keep its resources even after the
// operator has lowered the worker's capacity.
func (h *Host) CheckRoom(tx *store.Tx, current, desired bourse.Amounts) (*bourse.Refusal, error) {
	more := slices.DeleteFunc(slices.Clone(desired), func(a bourse.Amount) bool { return a.Amount <= current.Of(a.Resource) })
	if len(more) == 0 {
		return nil, nil
	}
	committed, err := tx.CommittedAt(time.Now())
	if err != nil {
		return nil, err
	}
	return h.FromThisWorker(h.Ledger.Fits(less(committed, current), more)), nil
}

// FromThisWorker fills in this worker's name and region in r, and returns r. r may be nil.
func (h *Host) FromThisWorker(r *bourse.Refusal) *bourse.Refusal {
	if r != nil {
		r.Worker, r.Region = h.Worker, h.Region
	}
	return r
}

// Refusal returns a refusal from this worker with the given reason and detail.
func (h *Host) Refusal(reason bourse.RefusalReason, detail string) *bourse.Refusal {
	return h.FromThisWorker(&bourse.Refusal{Reason: reason, Detail: detail})
}

// Answer converts an error into the answer to a claim: the order's existing fill, a refusal, or err itself. Call it
// only if the claim has not recorded anything, because a broker that receives a refusal may fill the order on another
// worker.
func (h *Host) Answer(err error) (*bourse.Fill, *bourse.Refusal, error) {
	if d, ok := errors.AsType[NotFilledError](err); ok {
		return d.Fill, d.Refusal, nil
	}
	if bourse.CodeOf(err) == bourse.CodeUnavailable { // nothing was recorded, for example because the disk is full
		return nil, h.Refusal(bourse.RefusedUnavailable, "the worker cannot write to its store: "+err.Error()), nil
	}
	return nil, nil, err
}
