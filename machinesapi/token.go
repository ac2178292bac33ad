package machinesapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateToken is the body of a request to create a token.
type CreateToken struct {
	Name     string             `json:"name,omitempty"`      // shown in lists, logs, events and leases; default "token"
	Org      string             `json:"org_slug,omitempty"`  // AllOrgs: the whole cluster; default: the organization of the caller's token or of the apps
	Apps     []bourse.AppName   `json:"apps,omitempty"`      // valid only for these apps of one organization; default: all apps
	Machines []bourse.MachineID `json:"machines,omitempty"`  // valid only for these machines of one app
	ReadOnly bool               `json:"read_only,omitempty"` // the token cannot change anything
	Expiry   bourse.Duration    `json:"expiry,omitempty"`    // time until the token expires; default: never, or when the caller's token expires
}

// AllOrgs denotes all organizations and the cluster itself.
const AllOrgs = "*"

// Token describes a token created through the API.
type Token struct {
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Org       string             `json:"org_slug"` // AllOrgs: valid for the whole cluster
	Apps      []bourse.AppName   `json:"apps"`     // empty: all apps of the organization
	Machines  []bourse.MachineID `json:"machines"` // empty: all machines of the apps
	ReadOnly  bool               `json:"read_only"`
	MadeBy    string             `json:"made_by"`
	MadeWith  string             `json:"made_with,omitempty"` // ID of the token that was used to create this token
	CreatedAt time.Time          `json:"created_at"`
	ExpiresAt *time.Time         `json:"expires_at,omitempty"` // nil: the token never expires
	RevokedAt *time.Time         `json:"revoked_at,omitempty"`
	Token     string             `json:"token,omitempty"` // the token itself; only in the reply to the request that created it
}

// TokenList is a list of tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// RevokedToken is the reply to a revocation.
type RevokedToken struct {
	OK         bool     `json:"ok"`
	Revoked    []string `json:"revoked"`     // IDs of the revoked tokens
	StillValid []string `json:"still_valid"` // IDs of tokens that were created with a revoked one and are still valid
}

// CurrentTokens describes the permissions of the caller's token.
type CurrentTokens struct {
	Tokens []CurrentToken `json:"tokens"`
}

// CurrentToken is the Machines API's description of a token, with Bourse's additions.
type CurrentToken struct {
	ID           string             `json:"token_id"`
	Org          string             `json:"org_slug"`
	Organization string             `json:"organization"`
	Apps         []bourse.AppName   `json:"apps"`
	User         string             `json:"user"`
	Restricted   string             `json:"restricted_to_machine"` // the first element of Machines
	Source       string             `json:"source_machine_id"`     // always ""
	Machines     []bourse.MachineID `json:"machines"`
	ReadOnly     bool               `json:"read_only"`
	ExpiresAt    *time.Time         `json:"expires_at,omitempty"`
}

// DeployToken is the body of a request to create a token that is valid for the app in the path.
type DeployToken struct {
	Expiry bourse.Duration `json:"expiry,omitempty"`
}

// NewDeployToken is the reply to a request whose body is a DeployToken.
type NewDeployToken struct {
	Token string `json:"token"`
}

// Tokens is a client for tokens.
type Tokens struct{ Client *Client }

// Tokens returns a client for tokens.
func (c *Client) Tokens() Tokens { return Tokens{c} }

// Create creates a token. Only the reply to this call contains the token itself. Errors: invalid, forbidden (the new
// token would have more permissions than the caller's token), not_found (an app).
func (t Tokens) Create(ctx context.Context, in CreateToken) (Token, error) {
	return ask[Token](ctx, t.Client, call{method: http.MethodPost, path: path("tokens"), in: in})
}

// List lists the tokens that the caller may revoke, oldest first.
func (t Tokens) List(ctx context.Context) ([]Token, error) {
	out, err := ask[TokenList](ctx, t.Client, call{method: http.MethodGet, path: path("tokens")})
	return out.Tokens, err
}

// Revoke revokes a token. If descendants is set, it also revokes the tokens that were created with
// it. Revoking a token again has no effect. Errors: invalid, not_found (the token does not exist,
// or the caller may not revoke it).
func (t Tokens) Revoke(ctx context.Context, id string, descendants bool) (RevokedToken, error) {
	return ask[RevokedToken](ctx, t.Client, call{method: http.MethodDelete, path: path("tokens", id), query: query("made", strconv.FormatBool(descendants))})
}

// Current describes the permissions of the caller's own token.
func (t Tokens) Current(ctx context.Context) ([]CurrentToken, error) {
	out, err := ask[CurrentTokens](ctx, t.Client, call{method: http.MethodGet, path: path("tokens", "current")})
	return out.Tokens, err
}
