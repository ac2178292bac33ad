package machinesapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateToken is the body of a request for a new token.
type CreateToken struct {
	Name     string             `json:"name,omitempty"`      // shown in lists, logs, events and leases; default "token"
	Org      string             `json:"org_slug,omitempty"`  // AllOrgs: everything; default that of the caller, or of the apps
	Apps     []bourse.AppName   `json:"apps,omitempty"`      // only these, of one organization; default all of it
	Machines []bourse.MachineID `json:"machines,omitempty"`  // only these, of one app
	ReadOnly bool               `json:"read_only,omitempty"` // reads, and changes nothing
	Expiry   bourse.Duration    `json:"expiry,omitempty"`    // from now; default never, or when the caller's expires
}

// AllOrgs stands in place of an organization for all of them, and the cluster itself.
const AllOrgs = "*"

// Token is what is known of a token that was made.
type Token struct {
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Org       string             `json:"org_slug"` // AllOrgs: everything
	Apps      []bourse.AppName   `json:"apps"`     // none: all of the organization
	Machines  []bourse.MachineID `json:"machines"` // none: all of the apps
	ReadOnly  bool               `json:"read_only"`
	MadeBy    string             `json:"made_by"`
	MadeWith  string             `json:"made_with,omitempty"` // the id of another token
	CreatedAt time.Time          `json:"created_at"`
	ExpiresAt *time.Time         `json:"expires_at,omitempty"` // nil: never
	RevokedAt *time.Time         `json:"revoked_at,omitempty"`
	Token     string             `json:"token,omitempty"` // itself: only in the reply to the request that made it
}

// TokenList is a list of tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// RevokedToken is the reply to a revocation.
type RevokedToken struct {
	OK      bool     `json:"ok"`
	Revoked []string `json:"revoked"` // ids
	Left    []string `json:"left"`    // ids of tokens that were made with it, and are good still
}

// CurrentTokens is what a caller's own token is good for.
type CurrentTokens struct {
	Tokens []CurrentToken `json:"tokens"`
}

// CurrentToken has what the Machines API says of a token, and what ours may do.
type CurrentToken struct {
	ID           string             `json:"token_id"`
	Org          string             `json:"org_slug"`
	Organization string             `json:"organization"`
	Apps         []bourse.AppName   `json:"apps"`
	User         string             `json:"user"`
	Restricted   string             `json:"restricted_to_machine"` // the first of Machines
	Source       string             `json:"source_machine_id"`     // always ""
	Machines     []bourse.MachineID `json:"machines"`
	ReadOnly     bool               `json:"read_only"`
	ExpiresAt    *time.Time         `json:"expires_at,omitempty"`
}

// DeployToken is the body of a request for a token of the path's app.
type DeployToken struct {
	Expiry bourse.Duration `json:"expiry,omitempty"`
}

// NewDeployToken is the reply to it.
type NewDeployToken struct {
	Token string `json:"token"`
}

// Tokens calls the API about tokens: those that the client's own may make, see and
// revoke.
type Tokens struct{ Client *Client }

// Tokens returns a client for tokens.
func (c *Client) Tokens() Tokens { return Tokens{c} }

// Create makes a token, which is in this reply and nowhere else. Codes: invalid,
// forbidden (it would reach further than the caller's), not_found (an app).
func (t Tokens) Create(ctx context.Context, in CreateToken) (Token, error) {
	return ask[Token](ctx, t.Client, call{method: http.MethodPost, path: path("tokens"), in: in})
}

// List lists the tokens that the caller may revoke, the oldest first.
func (t Tokens) List(ctx context.Context) ([]Token, error) {
	out, err := ask[TokenList](ctx, t.Client, call{method: http.MethodGet, path: path("tokens")})
	return out.Tokens, err
}

// Revoke ends a token and, if made, those that were made with it. It may be
// repeated. Codes: invalid, not_found (or it is not the caller's).
func (t Tokens) Revoke(ctx context.Context, id string, made bool) (RevokedToken, error) {
	return ask[RevokedToken](ctx, t.Client, call{method: http.MethodDelete, path: path("tokens", id), query: query("made", strconv.FormatBool(made))})
}

// Current returns what the caller's own token is good for.
func (t Tokens) Current(ctx context.Context) ([]CurrentToken, error) {
	out, err := ask[CurrentTokens](ctx, t.Client, call{method: http.MethodGet, path: path("tokens", "current")})
	return out.Tokens, err
}
