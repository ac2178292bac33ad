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
