package endpoint

import (
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Gate decides who may make a request, and limits how many orders may be in progress.
type Gate struct {
	Tokens    Tokens // nil: no credentials are required
	Certified func(*tls.ConnectionState) (Identity, bool)
	Apps      *lookup.Apps
	Quota     *lookup.Checker
	Turns     *throttle.OrderLimiter
}

// Authorize identifies the caller and checks that it may use the route. Errors: unauthorized,
// forbidden, not_found (the app), unavailable.
func (g *Gate) Authorize(rt *Route, r *Request) error {
	needs := rt.Needs
	if needs == App {
		if err := r.App().Validate(); err != nil {
			return lookup.ErrNoApp // an app with this name cannot exist
		}
	}
	if g.Tokens == nil {
		r.Who = LocalIdentity
		return nil
	}
	if needs == Anyone {
		return nil
	}
	who, err := g.identify(r)
	if err != nil {
		return err
	}
	r.Who = who
	switch {
	case needs == Metrics && who.Scraper:
	case who.Scraper:
		return ErrForbidden()
	case needs >= Metrics && !who.Cluster():
		return bourse.Errorf(bourse.CodeForbidden, machinesapi.ClusterOnlyText)
	case needs == App && !who.Cluster():
		app, err := g.Usable(r, r.App())
		if err != nil {
			return err
		}
		r.Of = &app
	}
	return checkRestrictions(rt, r)
}

// checkRestrictions checks the restrictions of the caller's token. A read-only token may not change anything, run
// commands in a machine, or connect to it. A machine token may be used only for its own machines. Endpoints that do not
// concern a single machine reject machine tokens, unless their routes are declared with [ForMachines]. Errors:
// forbidden.
func checkRestrictions(rt *Route, r *Request) error {
	id := bourse.MachineID(r.PathValue("machine"))
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case r.Who.ReadOnly && !reads:
		return bourse.Errorf(bourse.CodeForbidden, machinesapi.ReadOnlyText)
	case len(r.Who.Machines) > 0 && !rt.Narrow && (id == "" || !r.Who.MayMachine(id)):
		return bourse.Errorf(bourse.CodeForbidden, machinesapi.MachinesOnlyText)
	}
	return nil
}

// identify identifies the caller by its token or, if it has none, by its certificate. Errors:
// unauthorized, unavailable.
func (g *Gate) identify(r *Request) (Identity, error) {
	shown := tokensIn(r.Header.Get("Authorization"))
	if len(shown) == 0 {
		if g.Certified != nil && r.TLS != nil {
			if who, known := g.Certified(r.TLS); known {
				return who, nil
			}
		}
		return Identity{}, errNoToken(nil)
	}
	var refused error
	for _, token := range shown {
		who, err := g.Tokens.Identify(r.Context(), token)
		if err == nil {
			return who, nil
		}
		if refused == nil || bourse.CodeOf(err) != bourse.CodeUnauthorized || errors.Is(err, ErrTokenEnded) {
			refused = err
		}
	}
	return Identity{}, errNoToken(refused)
}

// Usable returns the app with the given name. If the app does not exist, every caller gets not_found: app names are not
// secret, and clients interpret forbidden as "the name is already taken". Errors: not_found; forbidden if the caller
// may not use the app; unavailable.
func (g *Gate) Usable(r *Request, name bourse.AppName) (bourse.App, error) {
	app, err := g.Apps.FindCached(r.Context(), name)
	if err == nil && !r.Who.May(app) {
		err = ErrForbidden()
	}
	return app, err
}

// AppsOf returns the apps that the caller may use, including the default app.
func (g *Gate) AppsOf(r *Request) ([]bourse.App, error) {
	list, _, err := g.Apps.List(r.Context(), nil)
	if !slices.ContainsFunc(list, func(app bourse.App) bool { return app.Name == bourse.DefaultAppName }) {
		if app, errDefault := g.Apps.FindCached(r.Context(), bourse.DefaultAppName); errDefault == nil {
			list = append(list, app)
		}
	}
	return slices.DeleteFunc(list, func(app bourse.App) bool { return !r.Who.May(app) }), err
}

// maxShown is the maximum number of tokens checked per request.
const maxShown = 8

// tokensIn returns the tokens in an Authorization header. A header with the Bearer scheme contains one token. A header
// with the FlyV1 scheme, used by clients that also have Fly tokens, contains a comma-separated list of tokens.
func tokensIn(header string) []string {
	scheme, rest, _ := strings.Cut(header, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case rest == "":
	case strings.EqualFold(scheme, "Bearer"):
		return []string{rest}
	case strings.EqualFold(scheme, "FlyV1"):
		shown := strings.SplitN(rest, ",", maxShown+1)
		for i := range shown {
			shown[i] = strings.TrimSpace(shown[i])
		}
		return shown[:min(len(shown), maxShown)]
	}
	return nil
}

// errNoToken returns an unauthorized error with the message of the Machines API. If the token was
// valid earlier, the message also says why it is no longer valid. If the code of cause is not
// unauthorized, errNoToken returns cause itself.
func errNoToken(cause error) error {
	text := machinesapi.UnauthorizedText
	switch {
	case cause != nil && bourse.CodeOf(cause) != bourse.CodeUnauthorized:
		return cause
	case errors.Is(cause, ErrTokenEnded):
		text += ": " + bourse.MessageOf(cause)
	}
	return &bourse.Error{Code: bourse.CodeUnauthorized, Message: text, Err: cause}
}

// ErrForbidden returns an error with a message that clients interpret as "exists, but belongs to
// somebody else".
func ErrForbidden() error { return bourse.Errorf(bourse.CodeForbidden, machinesapi.ForbiddenText) }
