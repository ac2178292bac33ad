package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Order tells how an order was decided. A filled one's record lives with its
// machine; a refused one's for a while in the broker that handled it. Codes:
// invalid, not_found.
func (c *Client) Order(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	var out bourse.Decision
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("orders", string(id)), out: &out})
	return out, err
}
