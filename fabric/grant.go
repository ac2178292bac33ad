package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// GrantRequest asks a worker to let another one read a volume or snapshot.
type GrantRequest struct {
	To  bourse.WorkerID `json:"to"`
	App bourse.App      `json:"app"` // whose it must be
}

// Grant is a worker's answer to that: a text that only it can make, valid for
// one volume or snapshot, one reader and a day.
type Grant struct {
	Grant string `json:"grant"`
}

var routeGrant = routeOf(PathGrant)

// Grant asks a worker to let another one read its volume or snapshot.
func (c *Client) Grant(ctx context.Context, to bourse.Member, id string, req GrantRequest) (string, error) {
	g, err := exchange[Grant](ctx, c, to, ask{route: routeGrant, id: id, body: req})
	return g.Grant, err
}
