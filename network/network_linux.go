package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// Network manages the private networks of this host's machines.
type Network struct {
	cfg      Config
	host     *host
	firewall *firewall
	pool     *namespacePool
	needed   chan struct{} // closed once the host has been prepared
	changed  chan struct{} // the channel that Changed returns

	// Attach and Detach hold recovery's read lock, and Recover holds its write lock. The locks are acquired in this
	// order: recovery, a machine's lock, mu.
	recovery  sync.RWMutex
	recovered bool // whether Recover has succeeded, and machines thus includes an earlier daemon's machines; guarded by recovery
	busy      keyed[bourse.MachineID]

	mu       sync.Mutex
	prepared bool // whether the host is prepared for machines
	machines map[bourse.MachineID]attached
	owners   map[netip.Addr]bourse.MachineID // machines by their IPv4 and IPv6 addresses
	remote   map[uint32]string               // names of the networks of laptops and of other workers' machines, by number
	laptops  map[netip.Addr]string           // names of the networks of laptops connected to this worker, by the laptop's address
	entry    bool                            // whether laptops are or may soon be connected to this worker; the rules then remain even without machines
}

// attached is a machine that has a network or for which one is being created.
type attached struct {
	spec  Spec
	group uint32
	ipv4  netip.Addr // zero if not assigned yet
}

// member returns the machine as the firewall sees it.
func (a attached) member() member {
	return member{link: linkName(a.spec.Machine), group: a.group, ipv6: a.spec.address(), ipv4: a.ipv4}
}

// Open returns a Network. To check whether the host supports private networks, it sets up a temporary namespace. The
// host itself remains unchanged until the first machine is attached or AdmitPeers is called. If the host does not
// support private networks, Open returns CodeUnavailable, and the message names the missing feature.
func Open(cfg Config) (*Network, error) {
	cfg = cfg.withDefaults()
	if os.Geteuid() != 0 {
		return nil, errNotRoot()
	}
	if !cfg.IPv4.Addr().Is4() || cfg.IPv4.Bits() > 30 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "network: IPv4 range %s: use one of at least 4 addresses", cfg.IPv4)
	}
	h, err := openHost(cfg)
	if err != nil {
		return nil, unavailable("open", err)
	}
	deny := append([]netip.Prefix{private, cfg.IPv4}, cfg.Deny...)
	n := &Network{
		cfg: cfg, host: h, needed: make(chan struct{}), changed: make(chan struct{}, 1),
		firewall: newFirewall(h.mark, dnsPort, deny, cfg.Mesh),
		machines: map[bourse.MachineID]attached{}, owners: map[netip.Addr]bourse.MachineID{}, remote: map[uint32]string{}, laptops: map[netip.Addr]string{},
	}
	n.pool = newPool(max(0, cfg.PooledNamespaces), n.newNamespace)
	if err := n.probe(); err != nil {
		h.nl.Close()
		return nil, unavailable("this host does not support private networks", err)
	}
	return n, nil
}

// CheckHost returns CodeUnavailable if this host cannot support private networks; the message names the missing
// feature. Unlike [Open], it does not change anything, so it does not set up a namespace either.
func CheckHost() error {
	if os.Geteuid() != 0 {
		return errNotRoot()
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return unavailable("open", err)
	}
	defer nl.Close()
	n := &Network{cfg: Config{}.withDefaults(), host: &host{nl: nl}}
	if err := n.checkOverlap(); err != nil {
		return unavailable("this host does not support private networks", err)
	}
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		return unavailable("the kernel lacks network namespaces", err)
	}
	c, err := new(firewall).conn()
	if err == nil {
		_, err = c.ListTables()
	}
	return unavailable("the kernel lacks nftables", err)
}

func errNotRoot() error {
	return bourse.Errorf(bourse.CodeUnavailable, "network: private networks need root")
}

// probe checks that the kernel supports all objects that machines will need, by setting them up in a temporary
// namespace.
func (n *Network) probe() error {
	if err := n.checkOverlap(); err != nil {
		return err
	}
	ns, err := n.newNamespace()
	if err != nil {
		return err
	}
	defer ns.close()
	trial := newFirewall(n.host.mark, dnsPort, n.firewall.deny, n.cfg.Mesh)
	trial.ns = int(ns.file.Fd())
	if err := trial.rebuild(); err != nil {
		return err
	}
	return n.host.nl.LinkDel(ns.outer)
}

// checkOverlap returns an error if one of the host's networks overlaps the machines' IPv4 range.
func (n *Network) checkOverlap() error {
	addresses, err := retried(func() ([]netlink.Addr, error) { return n.host.nl.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		ip, _ := netip.AddrFromSlice(a.IP.To4())
		bits, _ := a.Mask.Size()
		if p := netip.PrefixFrom(ip, bits); p.IsValid() && p.Overlaps(n.cfg.IPv4) {
			return fmt.Errorf("the range %s overlaps the host's own network %s: choose another range", n.cfg.IPv4, p.Masked())
		}
	}
	return nil
}

// Labels returns the labels of a worker that supports private networks. An order can require them.
func (n *Network) Labels() map[string]string { return map[string]string{"network": "private"} }

// Close releases this process's resources. Machines keep their networks. If no machine has a network and no laptop is
// connected to this worker, Close also removes the firewall table and the resolver's address from the host.
func (n *Network) Close() error {
	n.pool.drain(n.host)
	err := n.clearUnused()
	n.host.nl.Close()
	return unavailable("close", err)
}

// clearUnused removes the rules and the resolver's address from the host if no machine has a
// network, and no laptop is connected to this worker.
func (n *Network) clearUnused() error {
	// If the lock is not free, a call that needs these objects is in progress, or another call is already removing
	// them.
	if !n.recovery.TryLock() {
		return nil
	}
	defer n.recovery.Unlock()
	n.mu.Lock()
	unused := n.prepared && len(n.machines) == 0 && !n.entry
	n.mu.Unlock()
	if !unused {
		return nil
	}
	return n.clear()
}

// ruleCheckInterval is the interval at which missing rules are restored.
const ruleCheckInterval = time.Second

// Run answers DNS queries, prepares spare namespaces and maintains the firewall rules until ctx is done. It does
// nothing until the first machine is attached or AdmitPeers is called.
func (n *Network) Run(ctx context.Context, names Names) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.needed:
	}
	r := newResolver(n.cfg, names, n.machineAt)
	var wg sync.WaitGroup
	wg.Go(func() { n.pool.run(ctx, n.host, n.cfg.Log) })
	wg.Go(func() { r.run(ctx, n.firewall.resolver) })
	wg.Go(func() { n.maintainRules(ctx) })
	wg.Wait()
	return nil
}

// maintainRules restores rules that other programs have changed, and removes the rules once they are no longer needed.
func (n *Network) maintainRules(ctx context.Context) {
	tick := time.NewTicker(ruleCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := n.clearUnused(); err != nil {
			n.cfg.Log.Warn("remove unused networks failed", "err", err)
		}
		switch repaired, err := n.firewall.repair(); {
		case err != nil:
			n.cfg.Log.Error("check firewall failed", "err", err)
		case repaired:
			n.cfg.Log.Warn("firewall rules restored after another program changed them", "table", n.host.mark.table())
		}
	}
}

// machineAt returns the machine or laptop with the given address. For a laptop, Spec.Machine contains its address
// instead of an ID.
func (n *Network) machineAt(from netip.Addr) (Spec, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if network, ok := n.laptops[from]; ok {
		return Spec{Machine: bourse.MachineID(from.String()), Network: network}, true
	}
	id, ok := n.owners[from]
	return n.machines[id].spec, ok
}

// prepareHost prepares the host for machines, unless it is already prepared.
func (n *Network) prepareHost() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.prepared {
		return nil
	}
	if err := n.host.prepareHost(); err != nil {
		return err
	}
	n.prepared = true
	select {
	case <-n.needed:
	default:
		close(n.needed)
	}
	return nil
}

// reserve records a machine that will be attached, and thereby reserves its network's number. It returns
// CodeFailedPrecondition if the machine belongs to another network.
func (n *Network) reserve(spec Spec) (attached, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.machines[spec.Machine]; ok {
		if a.spec.Network != spec.Network {
			return a, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s belongs to another private network", spec.Machine)
		}
		return a, nil
	}
	taken := maps.Clone(n.remote) // a network's number remains taken until the rules for the network's remote machines are removed
	for _, a := range n.machines {
		taken[a.group] = a.spec.Network
	}
	a := attached{spec: spec, group: group(spec.Network, taken)}
	n.machines[spec.Machine] = a
	return a, nil
}

// settle records a machine together with its addresses.
func (n *Network) settle(a attached) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machines[a.spec.Machine] = a
	n.owners[a.spec.address()], n.owners[a.ipv4] = a.spec.Machine, a.spec.Machine
	n.noteChange()
}

// drop removes a machine.
func (n *Network) drop(id bourse.MachineID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.machines[id]; ok {
		delete(n.owners, a.spec.address())
		delete(n.owners, a.ipv4)
	}
	delete(n.machines, id)
	n.noteChange()
}

// find returns a machine. It returns false if the machine is unknown or has no addresses yet.
func (n *Network) find(id bourse.MachineID) (attached, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.machines[id]
	return a, ok && a.ipv4.IsValid()
}

// errNoAddress is returned if all addresses in the range are in use.
var errNoAddress = errors.New("no free IPv4 address in the range")
