package admit

import (
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// ResourcePollers is what a refusal calls the hosts that ask for work.
const ResourcePollers = "pollers"

// Machine returns why the worker does not fill an order for what a machine of
// its config takes, be it a machine, a cold task or a hold; nil if it would.
func (h *Host) Machine(tx *store.Tx, order *bourse.Order, takes bourse.Amounts, now time.Time) (*bourse.Refusal, error) {
	return h.first(
		func() (*bourse.Refusal, error) { return h.Ever(order), nil },
		func() (*bourse.Refusal, error) { return h.Tries.refuse(order), nil },
		func() (*bourse.Refusal, error) { return orderID(tx, order) },
		func() (*bourse.Refusal, error) { return cordoned(tx) },
		func() (*bourse.Refusal, error) { return name(tx, order) },
		func() (*bourse.Refusal, error) { return h.mounts(tx, order) },
		func() (*bourse.Refusal, error) {
			committed, _, gone, err := h.committed(tx, order, takes, now)
			if gone != nil || err != nil {
				return gone, err
			}
			return h.Fits(committed, takes), nil
		},
		func() (*bourse.Refusal, error) { return h.port(tx, order), nil },
		func() (*bourse.Refusal, error) {
			if order.Config.ImageKind() != bourse.PollerImage || order.SkipLaunch {
				return nil, nil
			}
			return h.Room(&order.Config), nil
		},
	)
}

// Ever returns the reasons that no other machine's end would remove.
func (h *Host) Ever(order *bourse.Order) *bourse.Refusal {
	if r := h.region(order); r != nil {
		return r
	}
	if order.Kind() == bourse.KindHold && order.Config.Image == "" { // whatever will run
		return h.labels(order.Config.Requirements, h.Labels.Load().All)
	}
	if r := h.runs(order); r != nil {
		return r
	}
	return h.labels(order.Config.Requirements, h.Labels.Load().Of[order.Config.ImageKind()])
}

// runs returns why the worker does not run machines with the order's image.
func (h *Host) runs(order *bourse.Order) *bourse.Refusal {
	kind := order.Config.ImageKind()
	if !slices.Contains(h.Drivers, string(kind)) {
		return &bourse.Refusal{
			Reason: bourse.RefusedImage, Resource: order.Config.Image,
			Detail: fmt.Sprintf("no driver here runs image %s (drivers: %v)", bourse.Quoted(order.Config.Image), h.Drivers),
		}
	}
	if kind == bourse.RegistryImage {
		return h.image(order)
	}
	return nil
}

// orderID returns the reasons that lie in the order's id: it was canceled, or
// is another order's. What was held for an order and has ended is not held
// again: this order is a late repetition.
func orderID(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	no := func(detail string) (*bourse.Refusal, error) {
		return &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: detail}, nil
	}
	rec, known, err := tx.Order(order.ID)
	switch {
	case err != nil:
		return nil, err
	case known && rec.Canceled:
		return no("the order was canceled")
	case known && state.Foreign(&rec, &order.App):
		return no("the order's id is that of another order")
	case known && rec.Task != nil:
		return no("the order's id is that of a task")
	case known && rec.Held && order.Kind() == bourse.KindHold:
		return no("what was held for the order has ended")
	case known && rec.Held:
		return no("the order's id is one of a reservation's")
	case order.Kind() != bourse.KindHold:
		return nil, nil
	}
	rec, known, err = tx.Order(order.Hold.Reservation.All())
	if err != nil || !known || !rec.Canceled {
		return nil, err
	}
	return no("the reservation was released")
}

// name refuses the name of another living machine of the app.
func name(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	if order.Name == "" {
		return nil, nil
	}
	_, taken, err := tx.MachineNamed(order.App, order.Name)
	if err != nil || !taken {
		return nil, err
	}
	return &bourse.Refusal{Reason: bourse.RefusedName, Detail: fmt.Sprintf("app %s has a machine named %s", order.App.Name, order.Name)}, nil
}

// mounts returns the reason why an order's machine cannot have the volume that
// it mounts.
func (h *Host) mounts(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	for _, mount := range order.Config.Mounts {
		if _, r, err := h.Mountable(tx, mount.Volume, order.App.Owns, ""); r != nil || err != nil {
			return r, err
		}
	}
	return nil, nil
}

// cordoned refuses everything new while an operator wants the worker to take no orders,
// what was held for a reservation before too: who drains the worker has then
// seen all that it will have.
func cordoned(tx *store.Tx) (*bourse.Refusal, error) {
	c, err := store.CordonOf(tx)
	if err != nil || c == nil {
		return nil, err
	}
	detail := "the worker is cordoned"
	if c.By != "" {
		detail += " by " + c.By
	}
	return &bourse.Refusal{Reason: bourse.RefusedCordoned, Detail: detail}, nil
}

// TakeDevices chooses as many devices of m's kind of gpu as it wants, none of
// which another machine has. A kind whose devices have no names is only counted.
func (h *Host) TakeDevices(tx *store.Tx, m *bourse.Machine) error {
	m.Devices = nil
	all := h.Devices[m.Config.Guest.GPUKind]
	if m.Config.Guest.GPUs == 0 || len(all) == 0 {
		return nil
	}
	taken := map[string]bool{}
	for other, err := range tx.Machines() {
		if err != nil {
			return err
		}
		if other.ID == m.ID {
			continue
		}
		for _, name := range other.Devices {
			taken[name] = true
		}
	}
	free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return taken[name] })
	if int64(len(free)) < m.Config.Guest.GPUs { // the ledger counts the same, unless the operator has changed the names
		return bourse.Errorf(bourse.CodeInsufficient, "insufficient gpus: %d of kind %s are free, of %d wanted",
			len(free), m.Config.Guest.GPUKind, m.Config.Guest.GPUs)
	}
	m.Devices = free[:m.Config.Guest.GPUs]
	return nil
}
