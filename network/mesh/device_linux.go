package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// Device is a worker's end of the mesh. Its methods must not be called concurrently, except Ended.
type Device struct {
	cfg    Config
	link   string
	client *wgctrl.Client
	lock   *os.File
	ended  chan struct{}
	work   sync.WaitGroup
	socket net.Conn    // open while wireguard-go's process runs; nil if it does not, or if the kernel implements the link
	child  *os.Process // wireguard-go's process if this daemon has started it
	routes map[wgtypes.Key]route
}

// route is what is known about the way to a peer.
type route struct {
	seen  netip.AddrPort // where the peer's packets came from; if it is behind NAT, it is reached only there
	since time.Time      // when this worker began to wait for a handshake; zero while there is a session
}

// attemptTime is how long a peer is expected at one address before the other one is tried.
const attemptTime = 10 * time.Second

// endpoint returns where to send packets to a peer without a session, which has published an endpoint.
func (r route) endpoint(published netip.AddrPort, now time.Time) netip.AddrPort {
	switch {
	case !r.seen.IsValid():
		return published
	case published.IsValid() && now.Sub(r.since)/attemptTime%2 == 1:
		return published
	}
	return r.seen
}

// keepalive is the interval at which each of two workers sends at least one packet, so that handshakes are repeated and
// NAT lets the other side's packets through.
const keepalive = 25 * time.Second

// Open prepares a Device. It changes nothing on the host, except that it locks it: a host has only one mesh, because all
// machines' addresses share a prefix. Open returns CodeUnavailable if another process has the mesh.
func Open(cfg Config) (*Device, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockHost("/run")
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "mesh: %w", err)
	}
	client, err := wgctrl.New()
	if err != nil {
		_ = lock.Close()
		return nil, bourse.Errorf(bourse.CodeUnavailable, "mesh: %w", err)
	}
	return &Device{cfg: cfg, link: LinkName(cfg.Dir), client: client, lock: lock, ended: make(chan struct{}, 1), routes: map[wgtypes.Key]route{}}, nil
}

// lockHost locks a file in the directory dir. Its name contains the number of the network namespace, so that workers in
// different namespaces do not exclude each other. The kernel releases the lock when the file is closed.
func lockHost(dir string) (*os.File, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("bourse-mesh-%d.lock", ns.Ino)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s, which another worker on this host may hold: %w", f.Name(), err)
	}
	return f, nil
}

// Link returns the name of the link.
func (d *Device) Link() string { return d.link }

// Ended returns a channel of capacity one that contains an element if the process with wireguard-go may have exited.
func (d *Device) Ended() <-chan struct{} { return d.ended }

// Exists reports whether the link exists.
func (d *Device) Exists() bool {
	_, err := netlink.LinkByName(d.link)
	return err == nil
}

// Close releases the resources of this process. The link and its connections remain.
func (d *Device) Close() error {
	if d.socket != nil {
		_ = d.socket.Close()
	}
	d.work.Wait()
	if d.child != nil {
		_ = d.child.Release()
	}
	return errors.Join(d.client.Close(), d.lock.Close())
}

// Remove removes the link of the mesh whose directory is dir, and waits until the process with wireguard-go has exited.
func Remove(ctx context.Context, dir string) error {
	link, err := netlink.LinkByName(LinkName(dir))
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !ok && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the mesh's link: %w", err)
	}
	return companion.AwaitEnd(ctx, lockFile(dir))
}

// Apply ensures that the link exists, and that it has exactly these peers. If keep is set, other workers also remain, and
// peers keep the addresses of machines that the list lacks. tag is this worker's tag. Connections of peers that remain
// continue.
func (d *Device) Apply(ctx context.Context, tag bourse.WorkerTag, peers []Peer, keep bool) error {
	link, err := d.ensure(ctx)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "mesh: %w", err)
	}
	current, err := d.client.Device(d.link)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "mesh: read the peers of %s: %w", d.link, err)
	}
	changes := d.changesTo(current.Peers, peers, keep, time.Now())
	c := wgtypes.Config{Peers: changes}
	if key := d.cfg.Identity.private(); clamped(current.PrivateKey) != clamped(key) {
		c.PrivateKey = &key
	}
	if port := int(d.cfg.Port); current.ListenPort != port {
		c.ListenPort = &port
	}
	if len(changes) > 0 || c.PrivateKey != nil || c.ListenPort != nil {
		if err := d.client.ConfigureDevice(d.link, c); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "mesh: configure %s: %w", d.link, err)
		}
	}
	if err := d.setUp(link, Address(tag)); err != nil { // last, so that an earlier daemon's peers cannot send before they are removed
		return bourse.Errorf(bourse.CodeUnavailable, "mesh: set link %s up: %w", d.link, err)
	}
	return nil
}

// clamped returns a private key in the form that WireGuard stores.
func clamped(k wgtypes.Key) wgtypes.Key {
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k
}

// changesTo returns the changes that lead from the current peers to the desired ones. If keep is set, it removes nothing.
func (d *Device) changesTo(current []wgtypes.Peer, desired []Peer, keep bool, now time.Time) []wgtypes.PeerConfig {
	have := make(map[wgtypes.Key]*wgtypes.Peer, len(current))
	for i := range current {
		have[current[i].PublicKey] = &current[i]
	}
	routes := make(map[wgtypes.Key]route, len(desired))
	if keep {
		maps.Copy(routes, d.routes)
	}
	var out []wgtypes.PeerConfig
	for _, p := range desired {
		old := have[p.Key]
		delete(have, p.Key)
		c := wgtypes.PeerConfig{PublicKey: p.Key}
		c.AllowedIPs, c.ReplaceAllowedIPs = changedAddresses(old, allowedBy(&p), keep)
		differs := c.ReplaceAllowedIPs || len(c.AllowedIPs) > 0
		if p.Worker != "" && (old == nil || old.PersistentKeepaliveInterval != keepalive) { // laptops keep their connections alive themselves
			c.PersistentKeepaliveInterval, differs = new(keepalive), true
		}
		r := d.routes[p.Key]
		if old != nil && now.Sub(old.LastHandshakeTime) < bourse.MeshReachable {
			r = route{seen: endpointOf(old)} // WireGuard follows the peer while there is a session
		} else {
			if r.since.IsZero() {
				r.since = now
			}
			if e := r.endpoint(p.Endpoint, now); e.IsValid() && (old == nil || endpointOf(old) != e) {
				c.Endpoint, differs = net.UDPAddrFromAddrPort(e), true
			}
		}
		routes[p.Key] = r
		if differs || old == nil {
			out = append(out, c)
		}
	}
	d.routes = routes
	for key, old := range have {
		if !keep || isLaptop(old) {
			out = append(out, wgtypes.PeerConfig{PublicKey: key, Remove: true})
		}
	}
	return out
}

// isLaptop reports whether a peer is a laptop. A worker has an address in the mesh, too.
func isLaptop(p *wgtypes.Peer) bool {
	a := prefixes(p.AllowedIPs)
	return len(a) == 1 && bourse.IsLaptopAddress(a[0])
}

// changedAddresses returns the addresses to send for a peer, and whether they replace its current ones. Replacing
// interrupts the peer's connections for a moment, so it happens only if the peer loses an address. old may be nil.
func changedAddresses(old *wgtypes.Peer, allowed []netip.Addr, keep bool) (list []net.IPNet, replace bool) {
	if old == nil {
		return networksOf(allowed), true
	}
	current := prefixes(old.AllowedIPs)
	if keep {
		for _, a := range current {
			if a.IsValid() && !bourse.IsLaptopAddress(a) && !slices.Contains(allowed, a) {
				allowed = append(allowed, a)
			}
		}
	}
	if slices.ContainsFunc(current, func(a netip.Addr) bool { return !slices.Contains(allowed, a) }) {
		return networksOf(allowed), true
	}
	missing := slices.DeleteFunc(slices.Clone(allowed), func(a netip.Addr) bool { return slices.Contains(current, a) })
	return networksOf(missing), false
}

func endpointOf(p *wgtypes.Peer) netip.AddrPort {
	if p.Endpoint == nil {
		return netip.AddrPort{}
	}
	e := p.Endpoint.AddrPort()
	return netip.AddrPortFrom(e.Addr().Unmap(), e.Port())
}

// allowedBy returns the sorted addresses from which a peer may send.
func allowedBy(p *Peer) []netip.Addr {
	out := []netip.Addr{p.Address}
	for _, m := range p.Machines {
		out = append(out, m.Address)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// prefixes returns the sorted addresses of a peer. Prefixes of more than one address become the zero address, which no
// peer has.
func prefixes(list []net.IPNet) []netip.Addr {
	var out []netip.Addr
	for _, n := range list {
		a, _ := netip.AddrFromSlice(n.IP)
		if ones, bits := n.Mask.Size(); ones != bits {
			a = netip.Addr{}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func networksOf(list []netip.Addr) []net.IPNet {
	out := make([]net.IPNet, len(list))
	for i, a := range list {
		out[i] = net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	}
	return out
}

// Status returns the connection to each of the given peers that is a worker.
func (d *Device) Status(peers []Peer) ([]bourse.MeshPeer, error) {
	current, err := d.client.Device(d.link)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "mesh: read the peers of %s: %w", d.link, err)
	}
	have := make(map[wgtypes.Key]*wgtypes.Peer, len(current.Peers))
	for i := range current.Peers {
		have[current.Peers[i].PublicKey] = &current.Peers[i]
	}
	out := make([]bourse.MeshPeer, 0, len(peers))
	for _, p := range peers {
		if p.Worker == "" {
			continue
		}
		s := bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines)}
		if w := have[p.Key]; w != nil {
			s.Endpoint, s.Received, s.Sent, s.Handshake = endpointOf(w), w.ReceiveBytes, w.TransmitBytes, w.LastHandshakeTime
		}
		out = append(out, s)
	}
	return out, nil
}

// ensure returns the link. It creates the link if it does not exist.
func (d *Device) ensure(ctx context.Context) (netlink.Link, error) {
	link, err := netlink.LinkByName(d.link)
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
		if err = d.create(ctx); err == nil {
			link, err = netlink.LinkByName(d.link)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", d.link, err)
	}
	if link.Type() != "wireguard" && d.socket == nil {
		if err := d.hold(ctx); err != nil {
			return nil, err
		}
	}
	return link, nil
}

// setUp sets the link up, with its address and MTU.
func (d *Device) setUp(link netlink.Link, address netip.Addr) error {
	attrs := link.Attrs()
	if attrs.MTU == d.cfg.MTU && attrs.Flags&net.FlagUp != 0 {
		return nil
	}
	const addrGenNone = 1 // the link needs no link-local address
	_ = netlink.LinkSetIP6AddrGenMode(link, addrGenNone)
	err := netlink.LinkSetMTU(link, d.cfg.MTU)
	if err == nil {
		err = netlink.AddrReplace(link, &netlink.Addr{
			IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD,
		})
	}
	if err == nil {
		err = netlink.LinkSetUp(link) // last, because a link that is up counts as complete
	}
	return err
}

// create creates the link: with the kernel's module, or with a process.
func (d *Device) create(ctx context.Context) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = d.link
	err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if d.socket != nil { // the process that had the link is gone
		_ = d.socket.Close()
		d.socket = nil
	}
	if d.child != nil {
		_ = d.child.Kill()
		_, _ = d.child.Wait()
		d.child = nil
	}
	if err := companion.AwaitEnd(ctx, lockFile(d.cfg.Dir)); err != nil {
		return err
	}
	d.child, err = companion.Spawn(ctx, slices.Concat(d.cfg.Command, []string{d.cfg.Dir}), d.cfg.Dir+"/log")
	if err != nil {
		return fmt.Errorf("start wireguard-go: %w", err)
	}
	return nil
}

// hold opens a connection that ends when the process with wireguard-go does.
func (d *Device) hold(ctx context.Context) error {
	c, err := new(net.Dialer).DialContext(ctx, "unix", "/var/run/wireguard/"+d.link+".sock")
	if err != nil {
		return fmt.Errorf("connect to wireguard-go: %w", err)
	}
	d.socket = c
	d.work.Go(func() {
		_, _ = io.Copy(io.Discard, c) // the process sends nothing
		select {
		case d.ended <- struct{}{}:
		default:
		}
	})
	return nil
}
