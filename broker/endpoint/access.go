package endpoint

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Tokens knows who a bearer token belongs to.
type Tokens interface {
	// Identify returns the token's owner, or CodeUnauthorized. CodeUnavailable:
	// it is not known here yet.
	Identify(ctx context.Context, token string) (Identity, error)
}

// Identity is who makes a request and how far it may reach. Without an
// organization and apps it may do everything.
type Identity struct {
	Name     string             // owner of the leases it takes
	Token    string             // the id of its token, "" for one that was not made by the API
	Org      string             // when set: only this organization's apps
	Apps     []bourse.AppRef    // when set: only these; without an id whichever has the name
	Machines []bourse.MachineID // when set: only these of the apps
	Until    time.Time          // when its token expires, zero: never
	ReadOnly bool               // it changes nothing, and opens nothing in a machine

	Scraper bool // it reads metrics, and may do nothing else
}

// LocalIdentity is who asks a broker without tokens.
var LocalIdentity = Identity{Name: "local"}

// Cluster reports whether the identity may see and change the cluster itself.
func (i Identity) Cluster() bool {
	return i.Org == "" && len(i.Apps) == 0 && len(i.Machines) == 0 && !i.Scraper
}

// May reports whether the identity may use the app.
func (i Identity) May(app bourse.App) bool {
	return !i.Scraper && (i.Org == "" || i.Org == app.Org) && (len(i.Apps) == 0 || slices.ContainsFunc(i.Apps, func(ref bourse.AppRef) bool {
		return ref.Name == app.Name && (ref.ID == "" || ref.ID == app.ID)
	}))
}

// MayMachine reports whether the identity may use a machine of an app that it may use.
func (i Identity) MayMachine(id bourse.MachineID) bool {
	return len(i.Machines) == 0 || slices.Contains(i.Machines, id)
}

// Scope is what an endpoint asks of the caller.
type Scope int

// The scopes.
const (
	Anyone  Scope = iota // no token
	Token                // a token; the endpoint looks closer itself
	App                  // a token that may use the path's app
	Metrics              // a token without bounds, or a scraper
	Cluster              // a token without bounds
)
