package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Order returns how an order was decided. The broker that handled it knows all of
// it for a while; a filled one's ranking is kept with its machine. Codes:
// invalid, not_found.
func (c *Client) Order(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	var out bourse.Decision
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("orders", string(id)), out: &out})
	return out, err
}

// Orders lists the orders that the broker decided lately, newest first, 100 at most,
// without their rounds: another broker's are not among them.
func (c *Client) Orders(ctx context.Context) ([]bourse.Decision, error) {
	var out []bourse.Decision
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("orders"), out: &out})
	return out, err
}

// OrderPull returns how far the pull has come that an order, which is being placed,
// waits for, by the id that its client chose. Codes: invalid, not_found (it waits for none, or
// another broker places it).
func (c *Client) OrderPull(ctx context.Context, app bourse.AppName, id bourse.OrderID) (PullLine, error) {
	var out PullLine
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("apps", string(app), "orders", string(id), "pull"), out: &out})
	return out, err
}
