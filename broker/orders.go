package broker

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// getOrder returns the decision about an order. The path contains the order's ID, as returned in the reply to the
// order. If the query names an app, the path may instead contain the ID that the client chose. The broker that made the
// decision keeps the complete decision, but only temporarily. The worker that filled the order keeps most of it for as
// long as the machine exists.
func (h *orderHandler) getOrder(w http.ResponseWriter, r *endpoint.Request) error {
	id := bourse.OrderID(strings.ToUpper(r.PathValue("order")))
	if err := id.Validate(); err != nil {
		return err
	}
	if name := bourse.AppName(r.URL.Query().Get("app")); name != "" {
		app, err := h.gate.Usable(r, name)
		if err != nil {
			return errNoOrder(id)
		}
		id = id.In(app.ID)
	}
	for _, d := range h.Exchange.Decisions(id) {
		if h.mayRead(r, &d) {
			return endpoint.WriteJSON(w, http.StatusOK, d)
		}
	}
	decision, err := h.decisionOf(r.Context(), id)
	if err != nil {
		return err
	}
	if !h.mayRead(r, &decision) {
		return errNoOrder(id) // the reply must not reveal that the order exists
	}
	return endpoint.WriteJSON(w, http.StatusOK, decision)
}

// listOrders lists the recent orders of the caller's apps, newest first. The list contains only the decisions that this
// broker made, without the details of their rounds.
func (h *orderHandler) listOrders(w http.ResponseWriter, r *endpoint.Request) error {
	var mine []bourse.App
	if !r.Who.Cluster() {
		var err error
		if mine, err = h.gate.AppsOf(r); err != nil {
			return err
		}
	}
	out := h.Exchange.Recent(maxOrders, func(d *bourse.Decision) bool {
		return r.Who.Cluster() || slices.ContainsFunc(mine, func(app bourse.App) bool { return d.OwnedBy(&app) })
	})
	for i := range out {
		out[i].Rounds = nil
	}
	return endpoint.WriteJSON(w, http.StatusOK, append([]bourse.Decision{}, out...))
}

// maxOrders is the maximum number of orders in a list.
const maxOrders = 100

// getPull returns the progress of the image pull that an order is waiting for. The order must belong to one of the
// caller's apps and be in progress on this broker.
func (h *orderHandler) getPull(w http.ResponseWriter, r *endpoint.Request) error {
	id := bourse.OrderID(strings.ToUpper(r.PathValue("order")))
	if err := id.Validate(); err != nil {
		return err
	}
	app, err := h.gate.Usable(r, r.App())
	if err != nil {
		return err
	}
	id = id.In(app.ID)
	at, ok := h.Exchange.Claiming(id)
	if !ok {
		return bourse.Errorf(bourse.CodeNotFound, "order %s is not in progress on this broker", id)
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	image, err := fabric.OrderPull.Call(ctx, h.Workers, at, id)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.PullLine{Worker: at.ID, Region: at.Region, Image: &image})
}

// mayRead reports whether the caller may read the decision: its order must belong to an app that
// the caller may use.
func (h *orderHandler) mayRead(r *endpoint.Request, d *bourse.Decision) bool {
	if r.Who.Cluster() {
		return true
	}
	app, err := h.gate.Usable(r, d.App)
	return err == nil && d.OwnedBy(&app)
}

// decisionOf asks all workers for the decision about an order. The worker that filled the order has stored the
// decision.
func (h *orderHandler) decisionOf(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	here, away := h.Directory.All()
	answers := lookup.Ask(ctx, h.Timeout, here, lookup.Asking(h.Workers, &fabric.OrderShow, id))
	lost := 0
	for _, a := range answers {
		switch {
		case a.Err == nil:
			return a.Got, nil
		case bourse.CodeOf(a.Err) != bourse.CodeNotFound:
			lost++
		}
	}
	for i := range away {
		if a := &away[i]; !a.Lost(h.Now()) && a.MayHaveFilled(id, h.Now()) {
			lost++
		}
	}
	if lost > 0 {
		return bourse.Decision{}, bourse.Errorf(bourse.CodeUnavailable, "order %s: %d workers do not respond, and no other worker has filled the order", id, lost)
	}
	return bourse.Decision{}, errNoOrder(id)
}

func errNoOrder(id bourse.OrderID) error {
	return bourse.Errorf(bourse.CodeNotFound, "order %s not found: no worker has filled the order, and this broker has not refused it recently", id)
}
