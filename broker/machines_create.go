package broker

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
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
	if err := b.mayHaveMachine(r.Context(), &order); err != nil {
		return err
	}
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
	b.owners.remember(m.ID, ownerOf(m))
	b.fresh.note(m)
	if !fill.Again {
		b.placed(order.App, usage{machines: 1, config: configBytes(&order.Config)})
	}
	out := machinesapi.FromMachine(m)
	if order.LeaseTTL > 0 {
		out.Nonce = nonceOf(m)
	}
	if order.Name != "" {
		if has := b.named(r.Context(), &order.App, order.Name); len(has) > 0 && has[0].ID != m.ID {
			out.NameConflict = has[0].ID
		}
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
	chosen, err := chosenID(r)
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
	order := bourse.Order{App: app, Name: in.Name, Regions: regions, Config: *in.Config, Reservation: in.Reservation, Options: bourse.Options{
		SkipLaunch: in.SkipLaunch, Cordoned: in.SkipServiceRegistration, LeaseTTL: in.LeaseTTL, LeaseOwner: r.who.Name,
		Race: in.Race, Within: in.Deadline, First: in.FirstTry,
	}}
	chosen.name(&order)
	return order, order.Validate()
}

// chosen is the id that a client chose for its order, empty for none.
type chosen bourse.OrderID

func chosenID(r *request) (chosen, error) {
	id := bourse.OrderID(strings.ToUpper(r.Header.Get(machinesapi.HeaderOrderID))) // one id, one spelling
	if id == "" {
		return "", nil
	}
	return chosen(id), id.Validate()
}

// name gives the order its id: the one that the client's choice means in the
// order's app, or a new one.
func (c chosen) name(order *bourse.Order) {
	if c == "" {
		order.ID = bourse.NewOrderID().In(order.App.ID)
		return
	}
	order.ID, order.Named = bourse.OrderID(c).In(order.App.ID), true
	if order.ID != bourse.OrderID(c) {
		order.Chosen = bourse.OrderID(c)
	}
}

// nameIsFree reports CodeAlreadyExists when a machine of the app has the
// order's name, unless it is the one that this very order became. The view's
// word is taken for it, and what owners have told here lately; each worker also
// refuses a name of its own. Of two machines that are made with one name at the
// same moment both exist, and nameConflicts says which of them has it.
func (b *Broker) nameIsFree(ctx context.Context, order *bourse.Order) error {
	found := b.named(ctx, &order.App, order.Name)
	for _, m := range found {
		if m.Order == order.ID {
			return nil
		}
	}
	for _, m := range found {
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
