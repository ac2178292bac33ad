package tenant

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/network/mesh"
	"github.com/bourse-dev/bourse/view/inventory"
)

// WireGuard serves the endpoints for laptops in private networks.
type WireGuard struct {
	View WireGuardView
	Gate *endpoint.Gate
	Apps *lookup.Apps
	Now  func() time.Time
}

// WireGuardView stores the laptops. All brokers share them.
type WireGuardView interface {
	// WireGuardPeers returns the laptops that may connect at the given time, oldest first.
	WireGuardPeers(ctx context.Context, now time.Time) ([]inventory.WireGuardPeer, error)
	// StoredWireGuardPeers returns the number of an organization's laptops, including those that may no longer connect.
	StoredWireGuardPeers(ctx context.Context, org string) (int, error)
	// PutWireGuardPeer stores a laptop, with the same durability guarantee as endpoint.TokenView's PutToken. A
	// removed laptop stays removed.
	PutWireGuardPeer(ctx context.Context, p *inventory.WireGuardPeer) error

	MeshWorkers(ctx context.Context) ([]inventory.MeshWorker, error)
	PrivateMachines(ctx context.Context, apps []bourse.AppRef) ([]inventory.PrivateMachine, error)
}

// Routes returns the endpoints.
func (h *WireGuard) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/wireguard_peers", endpoint.Token, h.create).Reads(machinesapi.CreateWireGuardPeer{}).Makes(machinesapi.WireGuardPeer{}),
		endpoint.On("GET /v1/wireguard_peers", endpoint.Token, h.list).Writes(machinesapi.WireGuardPeerList{}),
		endpoint.On("DELETE /v1/wireguard_peers/{peer}", endpoint.Token, h.remove).Writes(struct{}{}),
	}
}

// Limits for laptops. An organization's stored laptops include those that were recently removed or have recently
// expired.
const (
	maxLaptops    = 256 // per organization
	storedLaptops = 10_000
	laptopTTL     = 30 * 24 * time.Hour
	maxTTL        = 366 * 24 * time.Hour
)

func (h *WireGuard) create(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.CreateWireGuardPeer
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	p, err := h.recordOf(r, &in)
	if err != nil {
		return err
	}
	apps, err := h.appsIn(r.Context(), p.Network)
	if err != nil {
		return err
	}
	if len(apps) == 0 {
		return bourse.Errorf(bourse.CodeNotFound, "organization %s has no app in network %s", bourse.Quoted(p.Org), bourse.Quoted(in.Network))
	}
	loads, err := h.check(r.Context(), &p)
	if err != nil {
		return err
	}
	entry, err := h.entry(r.Context(), apps, loads, &in)
	if err != nil {
		return err
	}
	p.Worker = entry.ID
	r.Note(slog.String("peer", p.ID), slog.String("name", p.Name), slog.String("network", p.Network), slog.String("worker", string(p.Worker)))
	if err := h.View.PutWireGuardPeer(r.Context(), &p); err != nil {
		return err
	}
	out := showLaptop(&p)
	out.Settings = settings(&p, entry)
	return endpoint.WriteJSON(w, http.StatusCreated, out)
}

// recordOf returns a new laptop's record. The caller must set its entry, the worker that the laptop connects to.
// Errors: invalid; forbidden; not_found (the app); unavailable.
func (h *WireGuard) recordOf(r *endpoint.Request, in *machinesapi.CreateWireGuardPeer) (inventory.WireGuardPeer, error) {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // crypto/rand never fails
	p := inventory.WireGuardPeer{ID: hex.EncodeToString(id), Name: in.Name, MadeBy: r.Who.Name, MadeWith: r.Who.Token, CreatedAt: h.Now().UTC()}
	if err := checkName(p.Name); err != nil {
		return p, err
	}
	if len(in.PublicKey) != len(p.PublicKey) || !isPublicKey(in.PublicKey) {
		return p, bourse.Errorf(bourse.CodeInvalid, "public_key is not a WireGuard key")
	}
	copy(p.PublicKey[:], in.PublicKey)
	ttl := time.Duration(in.TTL)
	if ttl != 0 && ttl < time.Second || ttl > maxTTL {
		return p, bourse.Errorf(bourse.CodeInvalid, "invalid ttl %s: use 1s to %dh", ttl, int(maxTTL.Hours()))
	}
	var err error
	if p.ExpiresAt, err = expiry(p.CreatedAt, ttl, r.Who.Until); err != nil {
		return p, err
	}
	if latest := p.CreatedAt.Add(cmp.Or(ttl, laptopTTL)); p.ExpiresAt.IsZero() || p.ExpiresAt.After(latest) {
		p.ExpiresAt = latest
	}
	if in.App == "" {
		p.Org = cmp.Or(in.Org, r.Who.Org, bourse.DefaultOrg)
		p.Network = (&bourse.App{Org: p.Org, Network: in.Network}).PrivateNetwork()
		if !r.Who.May(bourse.App{Org: p.Org}) {
			return p, endpoint.ErrForbidden()
		}
		return p, nil
	}
	if in.Org != "" || in.Network != "" {
		return p, bourse.Errorf(bourse.CodeInvalid, "specify either app, or network and org_slug")
	}
	if err := in.App.Validate(); err != nil {
		return p, err
	}
	app, err := h.Gate.Usable(r, in.App)
	p.Org, p.Network, p.App = app.Org, app.PrivateNetwork(), app.Ref()
	return p, err
}

// isPublicKey reports whether key is a usable public key, which means that a key exchange with it succeeds. WireGuard
// rejects all other keys.
func isPublicKey(key []byte) bool {
	public, err := ecdh.X25519().NewPublicKey(key)
	if err != nil {
		return false
	}
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return false
	}
	_, err = own.ECDH(public)
	return err == nil
}

// appsIn returns the apps in a private network.
func (h *WireGuard) appsIn(ctx context.Context, network string) ([]bourse.AppRef, error) {
	list, _, err := h.Apps.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	if app, err := h.Apps.FindCached(ctx, bourse.DefaultAppName); err == nil {
		list = append(list, app)
	}
	var out []bourse.AppRef
	for i := range list {
		if list[i].PrivateNetwork() == network {
			out = append(out, list[i].Ref())
		}
	}
	return out, nil
}

// check checks whether laptop p may be added, and returns the number of laptops that connect to each worker. Errors:
// already_exists if the key is in use; forbidden if the organization has too many laptops.
func (h *WireGuard) check(ctx context.Context, p *inventory.WireGuardPeer) (map[bourse.WorkerID]int, error) {
	all, err := h.View.WireGuardPeers(ctx, h.Now())
	if err != nil {
		return nil, err
	}
	loads, mine := map[bourse.WorkerID]int{}, 0
	for i := range all {
		if all[i].PublicKey == p.PublicKey {
			return nil, errKeyInUse()
		}
		loads[all[i].Worker]++
		if all[i].Org == p.Org {
			mine++
		}
	}
	if mine >= maxLaptops {
		return nil, bourse.Errorf(bourse.CodeForbidden, machinesapi.QuotaText+"organization %s may have %d WireGuard peers: remove some", bourse.Quoted(p.Org), maxLaptops)
	}
	stored, err := h.View.StoredWireGuardPeers(ctx, p.Org)
	if err != nil {
		return nil, err
	}
	if stored >= storedLaptops {
		return nil, bourse.Errorf(bourse.CodeForbidden, machinesapi.QuotaText+"organization %s may have %d WireGuard peers in total, including removed ones, which are stored until a week after their expiry; use a shorter ttl",
			bourse.Quoted(p.Org), storedLaptops)
	}
	return loads, nil
}

func errKeyInUse() error {
	return bourse.Errorf(bourse.CodeAlreadyExists, "this public_key is in use: generate a key for each laptop and network")
}

// entry chooses the worker that a laptop connects to. Errors: already_exists if the key is a worker's; not_found;
// failed_precondition; unavailable.
func (h *WireGuard) entry(ctx context.Context, apps []bourse.AppRef, loads map[bourse.WorkerID]int, in *machinesapi.CreateWireGuardPeer) (inventory.MeshWorker, error) {
	workers, err := h.View.MeshWorkers(ctx)
	if err != nil {
		return inventory.MeshWorker{}, err
	}
	for i := range workers {
		if key, ok := mesh.KeyOf(workers[i].ID, workers[i].Mesh); ok && bytes.Equal(key[:], in.PublicKey) {
			return inventory.MeshWorker{}, errKeyInUse()
		}
	}
	machines, err := h.View.PrivateMachines(ctx, apps)
	if err != nil {
		return inventory.MeshWorker{}, err
	}
	runs := map[bourse.WorkerID]bool{}
	for _, m := range machines {
		runs[m.Worker] = true
	}
	return chooseEntry(workers, runs, loads, in.Region, in.Worker)
}

// chooseEntry chooses the worker with the fewest laptops among the workers that run a machine of the network. It
// prefers workers with public addresses, because most laptops can reach only these. A worker that runs no such machine
// does not see the network's traffic, so it is chosen only if the caller names it. chooseEntry is a pure function.
func chooseEntry(workers []inventory.MeshWorker, runs map[bourse.WorkerID]bool, loads map[bourse.WorkerID]int, region bourse.Region, named bourse.WorkerID) (inventory.MeshWorker, error) {
	var able []inventory.MeshWorker
	var reasons []string
	for _, w := range workers {
		if named != "" && w.ID != named || named == "" && !runs[w.ID] || region != "" && w.Region != region {
			continue
		}
		if why := unfit(&w); why != "" {
			reasons = append(reasons, "worker "+string(w.ID)+" "+why)
			continue
		}
		able = append(able, w)
	}
	switch {
	case len(able) > 0:
		return slices.MinFunc(able, func(a, b inventory.MeshWorker) int {
			return cmp.Or(isPrivate(&a)-isPrivate(&b), cmp.Compare(loads[a.ID], loads[b.ID]), cmp.Compare(a.ID, b.ID))
		}), nil
	case len(reasons) > 0:
		const most = 3
		text := strings.Join(reasons[:min(most, len(reasons))], "; ")
		return inventory.MeshWorker{}, bourse.Errorf(bourse.CodeFailedPrecondition, "no worker can connect the laptop: %s", text)
	case named != "":
		return inventory.MeshWorker{}, bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(string(named)))
	case region != "":
		return inventory.MeshWorker{}, bourse.Errorf(bourse.CodeFailedPrecondition, "no worker in region %s runs a machine of this network: start one, or name a worker (--worker)", bourse.Quoted(string(region)))
	}
	return inventory.MeshWorker{}, bourse.Errorf(bourse.CodeFailedPrecondition, "no worker runs a machine of this network: start one, or name a worker (--worker)")
}

// isPrivate returns 1 if the worker's WireGuard endpoint has a private IP address, and 0 otherwise.
func isPrivate(w *inventory.MeshWorker) int {
	if mesh.Usable(w.Mesh.Endpoint).Addr().IsPrivate() {
		return 1
	}
	return 0
}

// unfit returns the reason why laptops cannot connect to a worker, or "" if they can.
func unfit(w *inventory.MeshWorker) string {
	if w.Mesh == nil {
		return `is not connected to other workers: set mesh in its configuration`
	}
	switch _, proved := mesh.KeyOf(w.ID, w.Mesh); {
	case !proved:
		return "has not proved that it owns its WireGuard key"
	case w.ID.TagRank(w.Tag) >= bourse.TagChoices:
		return "has a tag that was not derived from its name, so other workers do not accept its machines' addresses"
	case !mesh.Usable(w.Mesh.Endpoint).IsValid():
		return `has no known address for WireGuard: set mesh = "IP:PORT" in its configuration, where IP:PORT is an address at which this UDP port can be reached`
	case w.HostStatus == machinesapi.HostUnreachable:
		return "cannot be reached"
	}
	return ""
}

// settings returns the settings that a laptop needs to connect to its worker.
func settings(p *inventory.WireGuardPeer, w inventory.MeshWorker) *machinesapi.WireGuardSettings {
	key, _ := mesh.KeyOf(w.ID, w.Mesh)
	host := mesh.Address(w.Tag) // sends ICMP errors
	return &machinesapi.WireGuardSettings{
		PublicKey: key[:], Endpoint: mesh.Usable(w.Mesh.Endpoint), DNS: network.ResolverAddress, MTU: mesh.MTU(0),
		AllowedIPs: []netip.Prefix{bourse.NetworkPrefix(p.Network), netip.PrefixFrom(network.ResolverAddress, 128), netip.PrefixFrom(host, 128)},
	}
}

// list lists the laptops that the caller may remove.
func (h *WireGuard) list(w http.ResponseWriter, r *endpoint.Request) error {
	all, err := h.View.WireGuardPeers(r.Context(), h.Now())
	if err != nil {
		return err
	}
	out := machinesapi.WireGuardPeerList{Peers: []machinesapi.WireGuardPeer{}}
	for i := range all {
		if mayRemove(&r.Who, &all[i]) {
			out.Peers = append(out.Peers, showLaptop(&all[i]))
		}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// remove removes a laptop.
func (h *WireGuard) remove(w http.ResponseWriter, r *endpoint.Request) error {
	id := r.PathValue("peer")
	all, err := h.View.WireGuardPeers(r.Context(), h.Now())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p inventory.WireGuardPeer) bool { return p.ID == id })
	if i < 0 || !mayRemove(&r.Who, &all[i]) {
		return bourse.Errorf(bourse.CodeNotFound, "WireGuard peer %s not found", bourse.Quoted(id)) // the reply must not reveal that it exists
	}
	p := all[i]
	p.RemovedAt = h.Now().UTC()
	r.Note(slog.String("peer", id), slog.String("name", p.Name))
	if err := h.View.PutWireGuardPeer(r.Context(), &p); err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, struct{}{})
}

// mayRemove reports whether the caller may list and remove a laptop, by the same rules as mayRevoke.
func mayRemove(who *endpoint.Identity, p *inventory.WireGuardPeer) bool {
	t := inventory.Token{Org: p.Org, MadeWith: p.MadeWith}
	if p.App.Name != "" {
		t.Apps = []bourse.AppRef{p.App}
	}
	return mayRevoke(who, &t)
}

func showLaptop(p *inventory.WireGuardPeer) machinesapi.WireGuardPeer {
	_, name, _ := strings.Cut(p.Network, "/")
	return machinesapi.WireGuardPeer{
		ID: p.ID, Name: p.Name, Org: p.Org, Network: name, App: p.App.Name, Worker: p.Worker, PublicKey: p.PublicKey[:],
		Address: bourse.LaptopAddress(p.Network, p.PublicKey), MadeBy: p.MadeBy, MadeWith: p.MadeWith, CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt,
	}
}
