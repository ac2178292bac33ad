// Package admit decides whether a worker fills an order: what the order takes
// of it, and why it is refused. A [Host] is the worker as orders see it; what is
// taken already is read from the transaction that decides. Nothing here writes,
// waits for anything, or asks anyone but the parts of the host that answer
// within microseconds; the time is an argument. Only [Tries] remembers.
//
// A quote and the claim that follows it ask the same questions. The claim asks
// them in the transaction that takes, so no resource is ever sold twice
// (invariant 4), and a no names the worker, the resource, what was wanted and
// what was free (invariant 10).
package admit

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// Host is a worker as orders are judged by. All but Labels and Tries is fixed
// once the worker is open.
type Host struct {
	Worker bourse.WorkerID
	Tag    bourse.WorkerTag
	Region bourse.Region

	Ledger  Ledger
	Ports   PortRange           // of $PORT
	Devices map[string][]string // by kind of gpu: the names of those that have one
	Drivers []string            // the kinds of images that run here
	Labels  atomic.Pointer[Labels]
	Tries   Tries
	Load    func() float64 // of the host; see [bourse.Quote]
	Short   func() error   // why the store takes nothing new, nil when it does; see [store.Store.Short]

	Private      map[bourse.ImageKind]bool            // kinds whose machines have a network of their own
	NoNetwork    error                                // why machines of images cannot have theirs; nil: they can, or need none
	Images       Images                               // nil: none
	ImageBudget  bourse.MiB                           // that all images together may take
	Containers   func() error                         // why the driver of images runs nothing now; nil when it does
	Scratch      bool                                 // root file systems can be limited
	VolumeLabels map[string]string                    // the facts of volumes; none without them
	Peers        bool                                 // other workers' volumes can be read
	Room         func(*bourse.Config) *bourse.Refusal // why no poller would take such a machine now; nil: there are no pollers
}

// Images are what is known of images without asking anyone.
type Images interface {
	// Missing returns how many bytes would have to be pulled for an organisation
	// to run a name; known is false for one that was never shown to it.
	Missing(org, name string) (bytes int64, known bool)
}

// Labels are a worker's facts: what its machines may rely on differs by the
// driver that runs them.
type Labels struct {
	Of  map[bourse.ImageKind]map[string]string
	All map[string]string // as others see them; those of host images where they differ
}

// The labels of what a host can do.
const (
	LabelVolume    = "volume"
	LabelDiskLimit = "limit.disk" // how a limit on a root file system is enforced
	// labelRuntime begins the labels that name the runtimes of a driver of
	// images.
	labelRuntime = "runtime."
)

// Quote answers an order for what a machine of its config takes. filled notes
// what fills the order here already, if anything does.
func (h *Host) Quote(ctx context.Context, s *store.Store, order *bourse.Order, filled func(*store.Tx, *bourse.Quote) error) (bourse.Quote, error) {
	q, err := h.NewQuote(ctx, s, order)
	if err != nil {
		return q, err
	}
	q.Takes = h.Ledger.Running(&order.Config)
	q.MissingBytes = h.missing(order)
	err = s.View(func(tx *store.Tx) error {
		if err := filled(tx, &q); err != nil || q.Fill() != nil {
			return err
		}
		now := time.Now()
		committed, drawn, _, err := h.committed(tx, order, q.Takes, now)
		if err != nil {
			return err
		}
		q.Accounts = h.Ledger.Accounts(committed)
		if q.AppMachines, err = appMachines(tx, order, now); err != nil {
			return err
		}
		q.Held = drawn != nil && slices.Equal(drawn, q.Takes)
		q.Refusal, err = h.Machine(tx, order, q.Takes, now)
		return err
	})
	if q.Refusal != nil { // it says what was short; no one ranks the rest
		q.Accounts, q.Takes = nil, nil
	}
	return q, err
}

// appMachines counts the machines that an order is to be spread among: those of its app, and, where capacity
// is held, those that its reservation still holds capacity for.
func appMachines(tx *store.Tx, order *bourse.Order, now time.Time) (int, error) {
	n := tx.LivingOf(order.App)
	if order.Hold == nil {
		return n, nil
	}
	holds, err := LiveHolds(tx, order.Hold.Reservation, &order.App, now)
	for i := range holds {
		n += min(len(holds[i].Left), 1)
	}
	return n, err
}

// NewQuote returns a quote that says nothing but whose it is. An order that may
// be a repetition can be filled already, perhaps a moment ago: what is on its
// way into the store is waited for.
func (h *Host) NewQuote(ctx context.Context, s *store.Store, order *bourse.Order) (bourse.Quote, error) {
	h.Tries.Asked(order)
	q := bourse.Quote{Worker: h.Worker, Region: h.Region, Load: h.Load()}
	if order.Named {
		return q, s.Sync(ctx)
	}
	return q, nil
}

// Fits returns why something new that takes so much cannot begin here, nil when
// it can: the ledger's reason, or that the store keeps what it can still record
// for the ends of what there is.
func (h *Host) Fits(committed, takes bourse.Amounts) *bourse.Refusal {
	if err := h.Short(); err != nil {
		return h.By(&bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)})
	}
	return h.Ledger.Fits(committed, takes)
}

// question asks for one reason to refuse an order, nil if it is none.
type question func() (*bourse.Refusal, error)

// first returns the first reason that there is, in the worker's name.
func (h *Host) first(questions ...question) (*bourse.Refusal, error) {
	for _, ask := range questions {
		if r, err := ask(); r != nil || err != nil {
			return h.By(r), err
		}
	}
	return nil, nil
}

// By has a refusal, if there is one, name the worker.
func (h *Host) By(r *bourse.Refusal) *bourse.Refusal {
	if r != nil {
		r.Worker, r.Region = h.Worker, h.Region
	}
	return r
}

// region refuses what is not for the worker's region.
func (h *Host) region(order *bourse.Order) *bourse.Refusal {
	if slices.ContainsFunc(order.Regions, func(choice bourse.Choice) bool { return slices.Contains(choice, h.Region) }) {
		return nil
	}
	return &bourse.Refusal{Reason: bourse.RefusedRegion, Detail: fmt.Sprintf("the worker is in %s", h.Region)}
}

// labels compares the labels that an order requires with the worker's.
func (h *Host) labels(requirements bourse.Requirements, have map[string]string) *bourse.Refusal {
	for name, want := range requirements {
		label, known := have[name]
		if name == bourse.LabelWorker {
			label, known = string(h.Worker), true
		}
		switch {
		case want.Count != 0: // a countable: the ledger knows it or refuses
		case !known:
			return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: name, Detail: fmt.Sprintf("the worker has no label %s", name)}
		case label != want.Label:
			return &bourse.Refusal{
				Reason: bourse.RefusedLabel, Resource: name,
				Detail: fmt.Sprintf("label %s is %s here, wanted %s", name, bourse.Quoted(label), bourse.Quoted(want.Label)),
			}
		}
	}
	return nil
}
