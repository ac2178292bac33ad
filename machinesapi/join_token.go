package machinesapi

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateJoinToken is the body of a request for a join token.
type CreateJoinToken struct {
	Roles  []bourse.Role   `json:"roles,omitempty"`  // roles that servers on the joining hosts may have; default worker
	Region bourse.Region   `json:"region,omitempty"` // region that the joining hosts must use; default any
	Uses   int             `json:"uses,omitempty"`   // number of hosts that may join; default 1
	TTL    bourse.Duration `json:"ttl,omitempty"`    // default one hour
}

// JoinToken describes a token that lets hosts join the cluster. Only the broker that created the token accepts it.
type JoinToken struct {
	ID        string        `json:"id"`
	Roles     []bourse.Role `json:"roles"`
	Region    bourse.Region `json:"region,omitempty"` // region that the joining hosts must use; "": any
	Uses      int           `json:"uses"`
	Hosts     []JoinedHost  `json:"hosts"` // hosts that have used the token
	CreatedAt time.Time     `json:"created_at"`
	ExpiresAt time.Time     `json:"expires_at"`
	Token     string        `json:"token,omitempty"` // the token itself; only in the reply to the request that created it
}

// JoinedHost is a host that has used a join token.
type JoinedHost struct {
	Host bourse.WorkerID `json:"host"`
	At   time.Time       `json:"at"`
}

// JoinTokenList is a list of join tokens.
type JoinTokenList struct {
	JoinTokens []JoinToken `json:"join_tokens"`
}

// JoinTokens is a client for join tokens.
type JoinTokens struct{ Client *Client }

// JoinTokens returns a client for join tokens.
func (c *Client) JoinTokens() JoinTokens { return JoinTokens{c} }

// Create creates a join token. Errors: invalid; failed_precondition if the broker cannot
// sign certificates.
func (t JoinTokens) Create(ctx context.Context, in CreateJoinToken) (JoinToken, error) {
	return ask[JoinToken](ctx, t.Client, call{method: http.MethodPost, path: path("join_tokens"), in: in})
}

// List lists the broker's join tokens, newest first.
func (t JoinTokens) List(ctx context.Context) ([]JoinToken, error) {
	out, err := ask[JoinTokenList](ctx, t.Client, call{method: http.MethodGet, path: path("join_tokens")})
	return out.JoinTokens, err
}

// Revoke revokes a join token. Errors: not_found.
func (t JoinTokens) Revoke(ctx context.Context, id string) error {
	_, err := ask[struct{}](ctx, t.Client, call{method: http.MethodDelete, path: path("join_tokens", id)})
	return err
}
