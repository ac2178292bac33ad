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

// Device is a worker's end of the mesh. Except for Ended, its methods must not be called concurrently.
type Device struct {
	cfg    Config
	link   string
	client *wgctrl.Client
	lock   *os.File
	ended  chan struct{}
	work   sync.WaitGroup
	socket net.Conn    // open while the wireguard-go process runs; nil if it does not run or if the kernel implements the link
	child  *os.Process // the wireguard-go process, if this daemon has started it
	routes map[wgtypes.Key]route
}

// route contains the state of this worker's attempts to reach a peer.
type route struct {
	seen  netip.AddrPort // source address of the peer's packets; the only address that works if the peer is behind NAT
	since time.Time      // when this worker began to wait for a handshake; zero during a session
}

// attemptTime is how long a worker tries one of a peer's two addresses before it tries the other.
const attemptTime = 10 * time.Second

// endpoint returns the address for packets to a peer without a session. It alternates between the address at which the
// peer was last seen and the endpoint that the peer has published. Either may be unknown; if both are, the result is
// the zero value.
func (r route) endpoint(published netip.AddrPort, now time.Time) netip.AddrPort {
	switch {
	case !r.seen.IsValid():
		return published
	case published.IsValid() && now.Sub(r.since)/attemptTime%2 == 1:
		return published
	}
	return r.seen
}

// keepalive is the maximum interval between two packets from a worker to a peer. The packets trigger new handshakes,
// and keep NAT mappings open for the peer's packets.
const keepalive = 25 * time.Second

// Open returns a Device, and acquires the host's lock for the mesh. A host can be part of only one mesh, because the
// machines' addresses in all meshes share a prefix. Apart from the lock, Open does not change the host. It returns
// CodeUnavailable if another process holds the lock.
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

// lockHost locks a file in dir. The file's name contains the network namespace's inode number, so that workers in
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

// Link returns the link's name.
func (d *Device) Link() string { return d.link }

// Ended returns a channel that receives a value when the wireguard-go process may have exited.
func (d *Device) Ended() <-chan struct{} { return d.ended }

// Exists reports whether the link exists.
func (d *Device) Exists() bool {
	_, err := netlink.LinkByName(d.link)
	return err == nil
}

// Close releases this process's resources. The link and its connections remain.
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

// Remove removes the link of the Device whose Config.Dir is dir, and waits until the wireguard-go process has exited.
func Remove(ctx context.Context, dir string) error {
	link, err := netlink.LinkByName(LinkName(dir))
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !ok && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove mesh link: %w", err)
	}
	return companion.AwaitEnd(ctx, lockFile(dir))
}

// Apply ensures that the link exists and has exactly the given peers. If keep is set, workers and machines that are
// missing from the list are kept, but missing laptops are removed. tag is this worker's tag. Connections to peers that
// remain are not interrupted.
func (d *Device) Apply(ctx context.Context, tag bourse.WorkerTag, peers []Peer, keep bool) error {
	link, err := d.ensure(ctx)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "mesh: %w", err)
	}
	current, err := d.client.Device(d.link)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "mesh: read peers of %s: %w", d.link, err)
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

// changesTo returns the changes that turn the current peers into the desired ones. If keep is set, the changes remove
// only laptops.
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

// isLaptop reports whether a peer is a laptop. A laptop has only one address, whereas a worker also has an address in
// the mesh.
func isLaptop(p *wgtypes.Peer) bool {
	a := prefixes(p.AllowedIPs)
	return len(a) == 1 && bourse.IsLaptopAddress(a[0])
}

// changedAddresses returns the addresses to configure for a peer, and whether they replace its current addresses or are
// added to them. Replacing addresses briefly interrupts the peer's connections, so this happens only if the peer loses
// an address. old is nil if the peer is new.
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

// allowedBy returns the sorted addresses that a peer may send from.
func allowedBy(p *Peer) []netip.Addr {
	out := []netip.Addr{p.Address}
	for _, m := range p.Machines {
		out = append(out, m.Address)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// prefixes returns a peer's sorted addresses. A prefix that contains more than one address becomes the zero address,
// which no peer has.
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

// Status returns the state of the connection to each worker in peers. It omits laptops.
func (d *Device) Status(peers []Peer) ([]bourse.MeshPeer, error) {
	current, err := d.client.Device(d.link)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "mesh: read peers of %s: %w", d.link, err)
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

// ensure returns the link, creating it if it does not exist.
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

// setUp sets the link's MTU and address, and brings the link up.
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

// create creates the link. If the kernel lacks WireGuard, create starts a wireguard-go process, which implements the
// link.
func (d *Device) create(ctx context.Context) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = d.link
	err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if d.socket != nil { // the process that implemented the link has exited
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

// hold connects to the wireguard-go process. When the process exits, the connection breaks, and the channel that Ended
// returns receives a value.
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
