package endpoint

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Tokens identifies the owners of bearer tokens.
type Tokens interface {
	// Identify returns the token's owner. Errors: unauthorized; unavailable if this broker cannot
	// yet determine whether the token is valid.
	Identify(ctx context.Context, token string) (Identity, error)
}

// Identity describes the caller of a request and its permissions. The zero value has all permissions. Org and the
// fields after it restrict them.
type Identity struct {
	Name     string             // recorded as the owner of leases that the caller acquires
	Token    string             // ID of the token; "" if the token was not created through the API
	Org      string             // if set, the caller may use only this organization's apps
	Apps     []bourse.AppRef    // if set, the caller may use only these apps; an entry without an ID allows any app with that name
	Machines []bourse.MachineID // if set, the caller may use only these machines of the apps
	Until    time.Time          // when the token expires; zero: never
	ReadOnly bool               // the caller may only read, and may not run commands in a machine or connect to it

	Scraper bool // the caller may only read metrics
}

// LocalIdentity is the identity of every caller if the broker requires no tokens.
var LocalIdentity = Identity{Name: "local"}

// Cluster reports whether the caller may view and change the whole cluster, rather than only apps.
func (i Identity) Cluster() bool {
	return i.Org == "" && len(i.Apps) == 0 && len(i.Machines) == 0 && !i.Scraper
}

// May reports whether the caller may use the app.
func (i Identity) May(app bourse.App) bool {
	return !i.Scraper && (i.Org == "" || i.Org == app.Org) && (len(i.Apps) == 0 || slices.ContainsFunc(i.Apps, func(ref bourse.AppRef) bool {
		return ref.Name == app.Name && (ref.ID == "" || ref.ID == app.ID)
	}))
}

// MayMachine reports whether the caller may use a machine. It assumes that the caller may use the
// machine's app.
func (i Identity) MayMachine(id bourse.MachineID) bool {
	return len(i.Machines) == 0 || slices.Contains(i.Machines, id)
}

// Scope is the permission that an endpoint requires of its callers.
type Scope int

// Scopes of endpoints.
const (
	Anyone  Scope = iota // no token required
	Token                // any valid token; the endpoint makes further checks
	App                  // a token that may use the app in the path
	Metrics              // an unrestricted token or a scraper
	Cluster              // an unrestricted token
)
