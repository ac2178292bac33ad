package machinesapi

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateWireGuardPeer is the body of a request to admit a laptop to a private network: the network
// of App, or the organization's network with the name Network.
type CreateWireGuardPeer struct {
	Name      string          `json:"name"`               // shown in lists
	App       bourse.AppName  `json:"app,omitempty"`      // replaces Org and Network
	Org       string          `json:"org_slug,omitempty"` // default: the organization of the caller's token, or "personal"
	Network   string          `json:"network,omitempty"`  // default: the network of the organization's apps that have no network of their own
	PublicKey []byte          `json:"public_key"`         // the laptop's WireGuard key, in base64
	Region    bourse.Region   `json:"region,omitempty"`   // region of the worker to which the laptop connects; default: any
	Worker    bourse.WorkerID `json:"worker,omitempty"`   // the worker to which the laptop connects (its entry); default: one that runs a machine in the network
	TTL       bourse.Duration `json:"ttl,omitempty"`      // how long the laptop may connect; default 720h, or until the caller's token expires
}

// WireGuardPeer describes a laptop that may connect to a private network.
type WireGuardPeer struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Org       string          `json:"org_slug"`
	Network   string          `json:"network"`       // "": the network of the organization's apps that have no network of their own
	App       bourse.AppName  `json:"app,omitempty"` // the app for whose network the peer was created
	Worker    bourse.WorkerID `json:"worker"`        // the worker to which the laptop connects (its entry)
	PublicKey []byte          `json:"public_key"`
	Address   netip.Addr      `json:"address"` // the laptop's address in the network
	MadeBy    string          `json:"made_by"`
	MadeWith  string          `json:"made_with,omitempty"` // ID of the token that was used
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`

	Settings *WireGuardSettings `json:"settings,omitempty"` // only in the reply to the request that created it
}

// WireGuardSettings contains the settings that a laptop needs to connect to its worker.
type WireGuardSettings struct {
	PublicKey  []byte         `json:"public_key"`
	Endpoint   netip.AddrPort `json:"endpoint"`
	AllowedIPs []netip.Prefix `json:"allowed_ips"` // addresses that the laptop reaches through the worker
	DNS        netip.Addr     `json:"dns"`         // resolves names of the network's apps
	MTU        int            `json:"mtu"`
}

// WireGuardPeerList is a list of laptops.
type WireGuardPeerList struct {
	Peers []WireGuardPeer `json:"wireguard_peers"`
}

// WireGuard is a client for laptops in private networks.
type WireGuard struct{ Client *Client }

// WireGuard returns a client for laptops in private networks.
func (c *Client) WireGuard() WireGuard { return WireGuard{c} }

// Create admits a laptop to a private network. Errors: invalid, forbidden, not_found (the app,
// network or worker), already_exists (the key is in use), failed_precondition (no worker is
// suitable).
func (w WireGuard) Create(ctx context.Context, in CreateWireGuardPeer) (WireGuardPeer, error) {
	return ask[WireGuardPeer](ctx, w.Client, call{method: http.MethodPost, path: path("wireguard_peers"), in: in})
}

// List lists the laptops that the caller may remove, oldest first. It omits laptops that have
// expired or been removed.
func (w WireGuard) List(ctx context.Context) ([]WireGuardPeer, error) {
	out, err := ask[WireGuardPeerList](ctx, w.Client, call{method: http.MethodGet, path: path("wireguard_peers")})
	return out.Peers, err
}

// Remove removes a laptop from its private network. Errors: not_found (it does not exist, or the caller may not remove
// it).
func (w WireGuard) Remove(ctx context.Context, id string) error {
	return w.Client.run(ctx, call{method: http.MethodDelete, path: path("wireguard_peers", id)})
}
