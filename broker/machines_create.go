package broker

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/machinesapi"
)

// orderHandler serves the endpoints for ordering machines and for reading the decisions about
// orders.
type orderHandler struct {
	*Config
	gate     *endpoint.Gate
	apps     *lookup.Apps
	quota    *lookup.Checker
	machines *lookup.Machines
	secrets  *tenant.Secrets
}

func (h *orderHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST "+endpoint.AllMachines, endpoint.App, h.gate.Ordering(endpoint.MachineLease, h.createMachine)).Reads(machinesapi.CreateMachine{}).Writes(machinesapi.Machine{}),
		endpoint.On("POST "+endpoint.OneApp+"/quotes", endpoint.App, h.gate.Ordering(endpoint.MachineLease, h.quoteMachine)).Reads(machinesapi.CreateMachine{}).Writes(machinesapi.QuoteReply{}),
		endpoint.On("GET /v1/orders", endpoint.Token, h.listOrders).Writes([]bourse.Decision{}),
		endpoint.On("GET /v1/orders/{order}", endpoint.Token, h.getOrder).Writes(bourse.Decision{}).Asks("app"),
		endpoint.On("GET "+endpoint.OneApp+"/orders/{order}/pull", endpoint.App, h.getPull).Writes(machinesapi.PullLine{}),
	}
}

// createMachine places an order. It replies with the new machine, or with all refusals. The reply contains the order's
// ID unless the request failed before an ID was assigned.
func (h *orderHandler) createMachine(w http.ResponseWriter, r *endpoint.Request) error {
	order, warnings, err := h.readOrder(w, r)
	if err != nil {
		return err
	}
	w.Header().Set(machinesapi.HeaderOrderID, string(order.ID))
	if err := h.quota.MayHaveMachine(r.Context(), &order); err != nil {
		return err
	}
	if order.Name != "" {
		if err := h.nameIsFree(r.Context(), &order); err != nil {
			return err
		}
	}
	fill, decision, err := h.Exchange.Place(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, endpoint.ServerTiming(decision.Times))
	if err != nil {
		return placeError(&order, &decision, err)
	}
	m := &fill.Machine
	r.Note(slog.String("machine", string(m.ID)))
	h.machines.Remember(m)
	h.machines.RememberReply(m)
	if !fill.Repeated {
		h.quota.PlacedMachine(&order)
	}
	out := machinesapi.FromMachine(m)
	out.Warnings = warnings
	if order.LeaseTTL > 0 {
		out.Nonce = nonceOf(m)
	}
	if order.Name != "" {
		if has := h.machines.Named(r.Context(), &order.App, order.Name); len(has) > 0 && has[0].ID != m.ID {
			out.NameConflict = has[0].ID
		}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// quoteMachine replies with the decision that the broker would make if the order were placed now. The status is 200
// even if the decision is a refusal.
func (h *orderHandler) quoteMachine(w http.ResponseWriter, r *endpoint.Request) error {
	order, warnings, err := h.readOrder(w, r)
	if err != nil {
		return err
	}
	decision, err := h.Exchange.Quote(r.Context(), order)
	w.Header().Set(machinesapi.HeaderServerTiming, endpoint.ServerTiming(decision.Times))
	if err != nil && bourse.CodeOf(err) != bourse.CodeInsufficient {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.QuoteReply{Decision: decision, Warnings: warnings})
}

// readOrder converts a request to an order. It adds warnings about ignored fields to the reply's
// headers. Errors: invalid; not_found (the app); unavailable if no worker is known.
func (h *orderHandler) readOrder(w http.ResponseWriter, r *endpoint.Request) (bourse.Order, []bourse.Warning, error) {
	var in machinesapi.CreateMachine
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return bourse.Order{}, nil, err
	}
	chosen, err := chosenID(r)
	if err != nil {
		return bourse.Order{}, nil, err
	}
	warnings, err := review(w, in.Config, in.Review)
	if err != nil {
		return bourse.Order{}, nil, err
	}
	regions, err := choices(h.Directory, in.Region)
	if err != nil {
		return bourse.Order{}, nil, err
	}
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return bourse.Order{}, nil, err
	}
	order := bourse.Order{App: app, Name: in.Name, Regions: regions, Config: *in.Config, Reservation: in.Reservation, Options: bourse.Options{
		SkipLaunch: in.SkipLaunch, Cordoned: in.SkipServiceRegistration, LeaseTTL: in.LeaseTTL, LeaseOwner: r.Who.Name,
		Race: in.Race, Timeout: in.Deadline, FirstTry: in.FirstTry,
	}}
	if err := h.prepareStandby(r.Context(), &order); err != nil {
		return bourse.Order{}, nil, err
	}
	chosen.name(&order)
	if order.SkipSecrets = in.SkipSecrets; !order.SkipSecrets {
		if order.Secrets, order.AppKeys, err = h.secrets.Require(r.Context(), app.ID, in.MinSecretsVersion); err != nil {
			return bourse.Order{}, nil, err
		}
	}
	return order, warnings, order.Validate()
}

// review normalizes and validates the config of a request. It adds warnings about ignored fields to the reply's
// headers. Errors: invalid.
func review(w http.ResponseWriter, c *bourse.Config, whole func() ([]bourse.Warning, error)) ([]bourse.Warning, error) {
	if c == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "config is required")
	}
	c.Image = machinesapi.ImageName(c.Image)
	if err := c.Normalize(); err != nil {
		return nil, err
	}
	warnings, err := whole()
	if err != nil {
		return nil, err
	}
	endpoint.Warn(w, warnings...)
	return warnings, nil
}

// choices resolves a region expression. Errors: invalid; unavailable if no worker is known.
func choices(d lookup.Directory, expression string) ([]bourse.Choice, error) {
	known := d.Regions()
	if len(known) == 0 {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "no workers are known")
	}
	return bourse.ParseRegions(expression, known)
}

// chosen is an order ID chosen by the client, or "" if the client has not chosen one.
type chosen bourse.OrderID

func chosenID(r *endpoint.Request) (chosen, error) {
	id := bourse.OrderID(strings.ToUpper(r.Header.Get(machinesapi.HeaderOrderID))) // clients may write the ID in lower case
	if id == "" {
		return "", nil
	}
	return chosen(id), id.Validate()
}

// name sets the order's ID. If the client has chosen an ID, name derives the order's ID from that ID and the app.
// Otherwise, it generates one.
func (c chosen) name(order *bourse.Order) {
	if c == "" {
		order.ID = bourse.NewOrderID().In(order.App.ID)
		return
	}
	order.ID, order.HasChosenID = bourse.OrderID(c).In(order.App.ID), true
	if order.ID != bourse.OrderID(c) {
		order.ChosenID = bourse.OrderID(c)
	}
}

// nameIsFree returns CodeAlreadyExists if another of the app's machines has the name in the order, according to the
// view and recent replies. In addition, each worker refuses a name that one of its own machines already uses. If two
// machines with the same name are created at the same moment on different workers, both may exist; the newer machine's
// NameConflict then contains the older one's ID.
func (h *orderHandler) nameIsFree(ctx context.Context, order *bourse.Order) error {
	found := h.machines.Named(ctx, &order.App, order.Name)
	for _, m := range found {
		if m.Order == order.ID {
			return nil
		}
	}
	for _, m := range found {
		return &endpoint.Reply{Order: order.ID, Err: bourse.Errorf(bourse.CodeAlreadyExists,
			machinesapi.NameTakenText+"machine %s already exists with name %s%s", m.ID, bourse.Quoted(m.Name), h.machines.HostStatus(ctx, m))}
	}
	return nil
}
