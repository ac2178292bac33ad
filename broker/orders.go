package broker

import (
	"context"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// OrderReader finds the record of a filled order where its machine is.
type OrderReader interface {
	// Order gives the decision of an order that the worker filled, or
	// CodeNotFound.
	Order(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Decision, error)
}

// getOrder tells how an order was decided. The id is the one that the order was
// answered with; with an app, and at the broker that decided, also the one that
// its caller chose. The broker that decided knows all
// of it, for a while; of a filled one, its worker knows most of it as long as
// it has the machine.
func (b *Broker) getOrder(w http.ResponseWriter, r *request) error {
	id := bourse.OrderID(strings.ToUpper(r.PathValue("order")))
	if err := id.Validate(); err != nil {
		return err
	}
	if name := bourse.AppName(r.URL.Query().Get("app")); name != "" {
		app, err := b.usable(r, name)
		if err != nil {
			return errNoOrder(id)
		}
		id = id.In(app.ID)
	}
	for _, d := range b.Exchange.Decisions(id) {
		if b.mayRead(r, &d) {
			return writeJSON(w, http.StatusOK, d)
		}
	}
	decision, err := b.decisionOf(r.Context(), id)
	if err != nil {
		return err
	}
	if !b.mayRead(r, &decision) {
		return errNoOrder(id) // whose it is stays unsaid
	}
	return writeJSON(w, http.StatusOK, decision)
}

// mayRead reports whether the decision is about an order of the caller's.
func (b *Broker) mayRead(r *request, d *bourse.Decision) bool {
	if r.who.Cluster() {
		return true
	}
	app, err := b.usable(r, d.App)
	return err == nil && d.OwnedBy(&app)
}

// decisionOf asks the workers for the decision of an order that one of them
// filled.
func (b *Broker) decisionOf(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	answers := ask(ctx, b.Patience, b.Directory.Workers(), func(ctx context.Context, to bourse.Member) (bourse.Decision, error) {
		return b.Workers.Order(ctx, to, id)
	})
	lost := 0
	for _, a := range answers {
		switch {
		case a.err == nil:
			return a.got, nil
		case bourse.CodeOf(a.err) != bourse.CodeNotFound:
			lost++
		}
	}
	lost += len(b.absentThat(func(a *bourse.Absence) bool { return !a.Lost(b.Now()) && a.MayHaveFilled(id, b.Now()) }))
	if lost > 0 {
		return bourse.Decision{}, bourse.Errorf(bourse.CodeUnavailable, "order %s: %d workers do not answer, and no other knows it", id, lost)
	}
	return bourse.Decision{}, errNoOrder(id)
}

func errNoOrder(id bourse.OrderID) error {
	return bourse.Errorf(bourse.CodeNotFound, "order %s not found: no worker filled it, and this broker did not refuse it lately", id)
}
