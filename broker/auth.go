package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Tokens knows who a bearer token belongs to.
type Tokens interface {
	// Identify gives the token's owner, or CodeUnauthorized.
	Identify(ctx context.Context, token string) (Identity, error)
}

// Identity is who makes a request and how far it may reach. Without an
// organization and apps it may do everything.
type Identity struct {
	Name string           // owner of the leases it takes
	Org  string           // when set: only this organization's apps
	Apps []bourse.AppName // when set: only these
}

// Cluster tells whether the identity may see and change the cluster itself.
func (i Identity) Cluster() bool { return i.Org == "" && len(i.Apps) == 0 }

// may tells whether the identity may use the app.
func (i Identity) may(app bourse.App) bool {
	return (i.Org == "" || i.Org == app.Org) && (len(i.Apps) == 0 || slices.Contains(i.Apps, app.Name))
}

// scope is what an endpoint asks of the caller.
type scope int

const (
	scopeNone    scope = iota // anybody
	scopeToken                // a token; the endpoint looks closer itself
	scopeApp                  // a token that may use the path's app
	scopeCluster              // a token without bounds
)

// local is everybody on a broker without tokens.
var local = Identity{Name: "local"}

// authorise finds out who makes the request and whether they may. Codes:
// unauthorized, forbidden, not_found (the app), unavailable.
func (b *Broker) authorise(needs scope, r *request) error {
	if needs == scopeApp {
		if err := r.app().Validate(); err != nil {
			return errNoApp() // no such app can exist
		}
	}
	if b.Tokens == nil {
		r.who = local
		return nil
	}
	if needs == scopeNone {
		return nil
	}
	token, ok := bearer(r.Header.Get("Authorization"))
	if !ok {
		return errNoToken(nil)
	}
	who, err := b.Tokens.Identify(r.Context(), token)
	if err != nil {
		return errNoToken(err)
	}
	r.who = who
	switch {
	case needs == scopeCluster && !who.Cluster():
		return errForbidden()
	case needs == scopeApp:
		if r.who.Cluster() {
			return nil
		}
		app, err := b.usable(r, r.app())
		r.of = &app
		return err
	}
	return nil
}

// usable gives the app of a name. Codes: forbidden (the caller may not use it),
// not_found, unavailable.
func (b *Broker) usable(r *request, name bourse.AppName) (bourse.App, error) {
	if r.who.Org == "" && !r.who.may(bourse.App{Name: name}) {
		return bourse.App{}, errForbidden() // whether it exists or not
	}
	app, err := b.apps.recall(r.Context(), name)
	if err == nil && !r.who.may(app) {
		err = errForbidden()
	}
	return app, err
}

func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

// errNoToken has the text of the Machines API.
func errNoToken(cause error) error {
	if cause != nil && bourse.CodeOf(cause) != bourse.CodeUnauthorized {
		return cause
	}
	return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "Authenticate: token validation error", Err: cause}
}

// errForbidden has the text that clients take as "exists, and is not yours".
func errForbidden() error { return bourse.Errorf(bourse.CodeForbidden, "unauthorized") }
