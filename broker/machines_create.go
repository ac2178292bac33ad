package broker

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// createMachine places an order and answers with the machine that filled it,
// or with everybody's refusal. The order's id is in every reply that got as
// far as having one.
func (b *Broker) createMachine(w http.ResponseWriter, r *request) error {
	order, err := b.readOrder(w, r)
	if err != nil {
		return err
	}
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	if order.Name != "" {
		if err := b.nameIsFree(r.Context(), &order); err != nil {
			return err
		}
	}
	fill, decision, err := b.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, serverTiming(decision.Times))
	if err != nil {
		return placeError(&order, &decision, err)
	}
	m := &fill.Machine
	b.owners.remember(m.ID, m.App)
	b.fresh.note(m)
	out := machinesapi.FromMachine(m)
	if order.LeaseTTL > 0 {
		out.Nonce = nonceOf(m)
	}
	return writeJSON(w, http.StatusOK, out)
}

// quoteMachine tells what an order would meet. A refusal is an answer here,
// not an error.
func (b *Broker) quoteMachine(w http.ResponseWriter, r *request) error {
	order, err := b.readOrder(w, r)
	if err != nil {
		return err
	}
	decision, err := b.Exchange.Quote(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, serverTiming(decision.Times))
	if err != nil && bourse.CodeOf(err) != bourse.CodeInsufficient {
		return err
	}
	return writeJSON(w, http.StatusOK, decision)
}

// readOrder makes an order of a request. Codes: invalid, not_found (the app),
// unavailable (nobody is there to take it).
func (b *Broker) readOrder(w http.ResponseWriter, r *request) (bourse.Order, error) {
	var in machinesapi.CreateMachine
	if err := decode(w, r, false, &in); err != nil {
		return bourse.Order{}, err
	}
	id, named, err := orderID(r.Header.Get(machinesapi.HeaderOrderID))
	if err != nil {
		return bourse.Order{}, err
	}
	if in.Config == nil {
		return bourse.Order{}, bourse.Errorf(bourse.CodeInvalid, "invalid config: it is required")
	}
	in.Config.Image = machinesapi.ImageName(in.Config.Image)
	if err := in.Config.Normalize(); err != nil {
		return bourse.Order{}, err
	}
	known := b.Directory.Regions()
	if len(known) == 0 {
		return bourse.Order{}, bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
	}
	regions, err := bourse.ParseRegions(in.Region, known)
	if err != nil {
		return bourse.Order{}, err
	}
	app, err := b.apps.recall(r.Context(), r.app())
	if err != nil {
		return bourse.Order{}, err
	}
	order := bourse.Order{ID: id, App: app, Name: in.Name, Regions: regions, Config: *in.Config, Reservation: in.Reservation, Options: bourse.Options{
		SkipLaunch: in.SkipLaunch, Cordoned: in.SkipServiceRegistration, LeaseTTL: in.LeaseTTL, LeaseOwner: r.who.Name,
		Race: in.Race, Within: in.Deadline, Named: named, First: in.FirstTry,
	}}
	return order, order.Validate()
}

// orderID takes the id that the client chose, or makes one.
func orderID(chosen string) (id bourse.OrderID, named bool, err error) {
	if chosen == "" {
		return bourse.NewOrderID(), false, nil
	}
	id = bourse.OrderID(strings.ToUpper(chosen)) // one id, one spelling
	return id, true, id.Validate()
}

// nameIsFree reports CodeAlreadyExists when a machine of the app has the
// order's name, unless it is the one that this very order became. Workers that
// do not answer are not waited for: each also refuses a name of its own.
func (b *Broker) nameIsFree(ctx context.Context, order *bourse.Order) error {
	found, _ := b.findMachines(ctx, fabric.MachinesQuery{App: order.App.Name, Name: order.Name})
	for i := range found {
		m := &found[i]
		if m.Name != order.Name || m.App != order.App.Name || m.Order == order.ID {
			continue
		}
		if m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed {
			continue
		}
		return &reply{order: order.ID, err: bourse.Errorf(bourse.CodeAlreadyExists,
			"already_exists: unique machine name violation, machine %s already exists with name %s", m.ID, bourse.Quoted(m.Name))}
	}
	return nil
}

// serverTiming writes an order's times as a Server-Timing header, in
// milliseconds.
func serverTiming(t bourse.Times) string {
	b := make([]byte, 0, 96)
	for i, part := range []struct {
		name string
		took time.Duration
	}{{"quote", t.Quote}, {"rank", t.Rank}, {"claim", t.Claim}, {"start", t.Start}, {"total", t.Total}} {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, part.name...), ";dur="...)
		b = strconv.AppendFloat(b, float64(part.took)/float64(time.Millisecond), 'f', 3, 64)
	}
	return string(b)
}
