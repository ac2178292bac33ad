package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// MachineLease is the lease of one machine, as a client reaches it.
type MachineLease struct {
	Client  *Client
	App     bourse.AppName
	Machine bourse.MachineID
}

// Lease returns the client's way to a machine's lease.
func (c *Client) Lease(app bourse.AppName, id bourse.MachineID) MachineLease {
	return MachineLease{c, app, id}
}

// Acquire takes a machine's lease, or extends it when nonce is the
// current one; a TTL of 0 means 60 s. Codes: invalid, not_found, conflict
// (another caller holds it).
func (l MachineLease) Acquire(ctx context.Context, in LeaseRequest, nonce string) (Lease, error) {
	var out LeaseEnvelope
	_, err := l.Client.do(ctx, call{method: http.MethodPost, path: machinePath(l.App, l.Machine, "lease"), header: nonceHeader(nonce), in: in, out: &out})
	return out.Data, err
}

// Get shows a machine's lease. Codes: not_found (machine, or lease).
func (l MachineLease) Get(ctx context.Context) (Lease, error) {
	var out LeaseEnvelope
	_, err := l.Client.do(ctx, call{method: http.MethodGet, path: machinePath(l.App, l.Machine, "lease"), out: &out})
	return out.Data, err
}

// Release releases a machine's lease. Codes: not_found (machine, or
// lease), conflict (not the current nonce).
func (l MachineLease) Release(ctx context.Context, nonce string) error {
	_, err := l.Client.do(ctx, call{method: http.MethodDelete, path: machinePath(l.App, l.Machine, "lease"), header: nonceHeader(nonce)})
	return err
}
