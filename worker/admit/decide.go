package admit

import (
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Decision is a worker's answer to one order, based on one snapshot of its store. A claim makes the decision and
// records its effects in the same transaction.
type Decision struct {
	Fill    *bourse.Fill    // the order's existing fill on this worker; if set, the other fields are not
	Refusal *bourse.Refusal // why the worker does not fill the order; nil if it does

	Takes     bourse.Amounts // resources that the order takes; for a machine, those that it takes while it runs
	Committed bourse.Amounts // amounts that are already committed, excluding capacity that the reservation holds for this order
	Held      bool           // whether the reservation holds all of Takes
	UsedHolds []bourse.Hold  // the reservation's holds that the machine uses, with the amounts that remain afterwards
	Devices   []string       // names of the machine's devices
	Port      int            // the machine's $PORT; 0 if it needs none
}

// NotFilledError reports that a claim's order is refused or is already filled here. A claim's transaction returns this
// error in order to roll back.
type NotFilledError struct{ Decision }

func (d NotFilledError) Error() string {
	if d.Refusal != nil {
		return d.Refusal.Detail
	}
	return "the order is already filled"
}

// Take calls Decide for a claim. Its error is a [NotFilledError] if the order is already
// filled or is refused.
func (h *Host) Take(tx *store.Tx, order *bourse.Order, now time.Time) (Decision, error) {
	d, err := h.Decide(tx, order, now)
	return d, notFilled(d, err)
}

// Precheck checks a claim's order in a read-only transaction, so that refused orders do not need a write transaction.
// It does not check ports or pollers, because their state may change before the write transaction. Like Take, it may
// return a [NotFilledError].
func (h *Host) Precheck(s *store.Store, order *bourse.Order) error {
	return s.View(func(tx *store.Tx) error {
		d, err := h.byRecords(tx, order, time.Now())
		return notFilled(d, err)
	})
}

// notFilled returns a [NotFilledError] if the decision is not to fill the order, and err otherwise.
func notFilled(d Decision, err error) error {
	if err == nil && (d.Fill != nil || d.Refusal != nil) {
		return NotFilledError{d}
	}
	return err
}

// Decide decides whether the worker fills an order for a machine, a volume, a cold task or held capacity. It first
// checks whether the order is already filled, because such an order may itself have taken the last free resources.
func (h *Host) Decide(tx *store.Tx, order *bourse.Order, now time.Time) (Decision, error) {
	d, err := h.byRecords(tx, order, now)
	if err == nil && d.Fill == nil && d.Refusal == nil && order.Kind() != bourse.KindVolume {
		d.Refusal = h.FromThisWorker(h.byHost(tx, order, &d))
	}
	return d, err
}

// byRecords begins a decision: it checks everything that depends only on the worker's records and features.
func (h *Host) byRecords(tx *store.Tx, order *bourse.Order, now time.Time) (d Decision, err error) {
	fill, past, err := History(tx, order, now)
	if err != nil || fill != nil {
		return Decision{Fill: fill}, err
	}
	checks := h.machine
	if order.Kind() == bourse.KindVolume {
		checks = h.volume
	}
	d.Refusal, err = first(append([]check{
		func() (*bourse.Refusal, error) { return h.supports(order), nil },
		func() (*bourse.Refusal, error) { return h.CheckConditions(tx, order, past) },
		func() (*bourse.Refusal, error) { return cordoned(tx) },
	}, checks(tx, order, now, &d)...))
	h.FromThisWorker(d.Refusal)
	return d, err
}

// byHost completes a decision: it chooses the port and checks the pollers. The state of ports and pollers may change at
// any time.
func (h *Host) byHost(tx *store.Tx, order *bourse.Order, d *Decision) (r *bourse.Refusal) {
	c := &order.Config
	if c.Image == "" { // a hold whose config has no image
		return nil
	}
	if d.Port, r = h.Port(tx, c, h.Private[c.ImageKind()], 0); r != nil {
		return r
	}
	if c.ImageKind() == bourse.PollerImage && !order.SkipLaunch {
		return h.Pollers(c)
	}
	return nil
}

// CheckConditions checks the conditions, apart from resources, that an order must meet before any work begins for it.
// It refuses the order if this worker was asked for a quote in a later attempt to fill the order, or if the order's app
// was deleted. past is the refusal that [History] returned; if it is not nil, CheckConditions returns it.
// CheckConditions ignores cordons, because a cordoned worker's machines still receive calls and requests.
func (h *Host) CheckConditions(tx *store.Tx, order *bourse.Order, past *bourse.Refusal) (*bourse.Refusal, error) {
	return first([]check{
		func() (*bourse.Refusal, error) { return h.Tries.refuse(order), nil },
		func() (*bourse.Refusal, error) { return past, nil },
		func() (*bourse.Refusal, error) { return deleted(tx, &order.App) },
	})
}

// check checks one condition of an order. It returns a refusal if the order does not meet
// the condition, and nil otherwise.
type check func() (*bourse.Refusal, error)

// first calls the checks in order. It returns the first refusal or error.
func first(checks []check) (*bourse.Refusal, error) {
	for _, ask := range checks {
		if r, err := ask(); r != nil || err != nil {
			return r, err
		}
	}
	return nil, nil
}

// machine returns the checks for an order that takes a machine's resources: an order
// for a machine, a cold task or a hold. The checks also fill in d.
func (h *Host) machine(tx *store.Tx, order *bourse.Order, now time.Time, d *Decision) []check {
	c := &order.Config
	d.Takes = h.Ledger.WhileRunning(c)
	return []check{
		func() (*bourse.Refusal, error) { return nameTaken(tx, order) },
		func() (*bourse.Refusal, error) { return h.mounts(tx, order) },
		func() (*bourse.Refusal, error) { return d.useHolds(tx, order, now) },
		func() (*bourse.Refusal, error) { return h.Fits(d.Committed, d.Takes), nil },
		func() (r *bourse.Refusal, err error) {
			if order.Kind() == bourse.KindHold || order.SkipLaunch {
				return nil, nil
			}
			d.Devices, r, err = h.FreeDevices(tx, c.Guest, "")
			return r, err
		},
	}
}

// History checks an order's history on this worker. It returns the order's existing fill, or a refusal if the order's
// id must not be used again. It returns nil for both if the order may be filled. An order is not filled again if it was
// canceled or if its machine, volume or hold no longer exists, because a repeat that arrives late must not have any
// effect.
func History(tx *store.Tx, order *bourse.Order, now time.Time) (*bourse.Fill, *bourse.Refusal, error) {
	no := func(detail string) (*bourse.Fill, *bourse.Refusal, error) {
		return nil, &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: detail}, nil
	}
	kind := order.Kind()
	if kind == bourse.KindHold {
		h, ok, err := tx.Hold(order.ID)
		if err != nil || ok && h.OwnedBy(&order.App) && h.ExpiresAt.After(now) {
			return &bourse.Fill{Hold: &h, Repeated: true}, nil, err
		}
	}
	rec, known, err := tx.Order(order.ID)
	switch {
	case err != nil:
		return nil, nil, err
	case !known:
	case state.Foreign(&rec, &order.App):
		return no("the order's id belongs to another order")
	case rec.Task != nil && kind != bourse.KindTask:
		return no("the order's id belongs to a task")
	case rec.Task != nil:
		return &bourse.Fill{Task: &rec.Task.Result, Repeated: true}, nil, nil
	case rec.Canceled:
		return no("the order was canceled")
	case rec.Held && kind == bourse.KindHold:
		return no("the order's hold no longer exists")
	case rec.Held:
		return no("the order's id belongs to a reservation")
	case rec.Machine != "" && kind == bourse.KindMachine:
		m, err := state.ReadMachine(tx, rec.Machine, state.RecentEvents)
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return no("the order's machine was destroyed")
		}
		return &bourse.Fill{Machine: m, Repeated: true}, nil, err
	case rec.Volume != "" && kind == bourse.KindVolume:
		v, err := tx.Volume(rec.Volume)
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return no("the order's volume was destroyed")
		}
		return &bourse.Fill{Volume: &v, Repeated: true}, nil, err
	case rec.Machine != "" || rec.Volume != "", kind == bourse.KindTask: // the id of a task's order must be unused, even if the earlier order was not filled
		return no("the order's id belongs to another order")
	}
	if kind != bourse.KindHold {
		return nil, nil, nil
	}
	rec, known, err = tx.Order(order.Hold.Reservation.All())
	if err != nil || !known || !rec.Canceled {
		return nil, nil, err
	}
	return no("the reservation was released")
}

// Repeat answers a repeated claim once the first one is complete. It returns the order's
// fill, or a refusal if the first claim failed.
func (h *Host) Repeat(s *store.Store, order *bourse.Order) (fill *bourse.Fill, refusal *bourse.Refusal, err error) {
	err = s.View(func(tx *store.Tx) error {
		fill, refusal, err = History(tx, order, time.Now())
		return err
	})
	if err == nil && fill == nil && refusal == nil {
		refusal = &bourse.Refusal{Reason: bourse.RefusedDriver, Detail: "the order's first claim failed here"}
	}
	return fill, h.FromThisWorker(refusal), err
}

// cordoned refuses all new orders while the worker is cordoned, even those for an
// existing reservation, because a cordoned worker is being drained.
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

// deleted refuses an order if, according to the worker's records, its app was deleted or
// was replaced by another app with the same name.
func deleted(tx *store.Tx, app *bourse.App) (*bourse.Refusal, error) {
	known, ok, err := tx.App(app.Name)
	if err != nil || !ok || app.ID == "" {
		return nil, err
	}
	if now := known.Merge(*app); now.ID == app.ID && now.DeletedAt == nil {
		return nil, nil
	}
	return &bourse.Refusal{Reason: bourse.RefusedApp, Detail: fmt.Sprintf("app %s was deleted, or replaced by another app with its name", app.Name)}, nil
}

// nameTaken refuses an order if another live machine of the app has the name that the order requests.
func nameTaken(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	if order.Name == "" {
		return nil, nil
	}
	_, taken, err := tx.MachineNamed(order.App, order.Name)
	if err != nil || !taken {
		return nil, err
	}
	return &bourse.Refusal{Reason: bourse.RefusedName, Detail: fmt.Sprintf("app %s already has a machine named %s", order.App.Name, order.Name)}, nil
}

// mounts refuses an order if one of the volumes that the machine needs cannot be mounted.
// A volume belongs to at most one machine.
func (h *Host) mounts(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	for _, mount := range order.Config.Mounts {
		no := func(format string, args ...any) *bourse.Refusal {
			return &bourse.Refusal{Reason: bourse.RefusedVolume, Resource: string(mount.Volume), Detail: fmt.Sprintf(format, args...)}
		}
		v, err := tx.Volume(mount.Volume)
		switch {
		case bourse.CodeOf(err) == bourse.CodeNotFound, err == nil && (!v.OwnedBy(&order.App) || v.State == bourse.VolumeDestroyed):
			return no("the app has no volume %s here", bourse.Quoted(string(mount.Volume))), nil
		case err != nil:
			return nil, err
		case !v.State.Usable():
			return no("volume %s is %s", v.ID, v.State), nil
		}
		holder, err := HolderOf(tx, &v)
		if err != nil {
			return nil, err
		}
		if holder != "" {
			return no("volume %s already claimed by machine %s", v.ID, holder), nil
		}
	}
	return nil, nil
}

// HolderOf returns the id of the live machine that owns a volume, or "" if no machine does.
func HolderOf(tx *store.Tx, v *bourse.Volume) (bourse.MachineID, error) {
	if v.Machine == "" {
		return "", nil
	}
	m, err := tx.Machine(v.Machine)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return "", nil
	case err != nil || m.State == bourse.StateDestroyed:
		return "", err
	}
	return m.ID, nil
}

// FreeDevices chooses the devices for a guest of machine m. A device is free unless it is assigned to another live
// machine. If the guest's GPU kind has no device names, FreeDevices returns no devices.
func (h *Host) FreeDevices(tx *store.Tx, guest *bourse.Guest, m bourse.MachineID) ([]string, *bourse.Refusal, error) {
	if guest == nil || guest.GPUs == 0 || len(h.Devices[guest.GPUKind]) == 0 {
		return nil, nil, nil
	}
	taken := map[string]bool{}
	for other, err := range tx.Machines() {
		if err != nil {
			return nil, nil, err
		}
		if other.ID == m || other.State == bourse.StateDestroyed {
			continue
		}
		for _, name := range other.Devices {
			taken[name] = true
		}
	}
	free := slices.DeleteFunc(slices.Clone(h.Devices[guest.GPUKind]), func(name string) bool { return taken[name] })
	if n := int64(len(free)); n < guest.GPUs { // the ledger has already checked the number of GPUs, but the operator may have changed the device names
		resource := bourse.GPUResource(guest.GPUKind)
		return nil, h.FromThisWorker(&bourse.Refusal{
			Reason: bourse.RefusedResource, Resource: string(resource), Wanted: guest.GPUs, Free: n,
			Detail: fmt.Sprintf("insufficient %s: wanted %d, free %d", resource, guest.GPUs, n),
		}), nil
	}
	return free[:guest.GPUs], nil, nil
}
