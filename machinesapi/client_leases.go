package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// AcquireLease takes a machine's lease, or extends it when nonce is the
// current one; a TTL of 0 means 60 s. Codes: invalid, not_found, conflict
// (another caller holds it).
func (c *Client) AcquireLease(ctx context.Context, app bourse.AppName, id bourse.MachineID, in LeaseRequest, nonce string) (Lease, error) {
	var out LeaseEnvelope
	_, err := c.do(ctx, call{method: http.MethodPost, path: machinePath(app, id, "lease"), header: nonceHeader(nonce), in: in, out: &out})
	return out.Data, err
}

// Lease shows a machine's lease. Codes: not_found (machine, or lease).
func (c *Client) Lease(ctx context.Context, app bourse.AppName, id bourse.MachineID) (Lease, error) {
	var out LeaseEnvelope
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "lease"), out: &out})
	return out.Data, err
}

// ReleaseLease releases a machine's lease. Codes: not_found (machine, or
// lease), conflict (not the current nonce).
func (c *Client) ReleaseLease(ctx context.Context, app bourse.AppName, id bourse.MachineID, nonce string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: machinePath(app, id, "lease"), header: nonceHeader(nonce)})
	return err
}
