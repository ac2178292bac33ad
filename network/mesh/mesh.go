package mesh

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// Config configures a Device.
type Config struct {
	Dir      string   // required; created if missing
	Command  []string // required; the command that runs Serve. Dir is appended as its last argument
	Identity Identity
	Port     uint16 // UDP port
	MTU      int    // of the link; see MTU
	Log      *slog.Logger
}

// View knows the cluster. Its answers are hints about machines, but brokers have signed which machines are in a network.
type View interface {
	// Members returns the workers, machines and laptops that matter to a worker with machines in these networks. These
	// networks and those of laptops whose entry is the worker count as the worker's.
	Members(ctx context.Context, self bourse.WorkerID, networks []string) (Members, error)
	// Whole reports whether the view has received the whole cluster since this daemon's start. Until then, Members may
	// lack workers and machines.
	Whole() bool
	// Changed returns a channel that contains an element if the result of Members may have changed. It is always the same
	// channel.
	Changed() <-chan struct{}
}

// Members is an excerpt of the view.
type Members struct {
	Workers  []Worker  // all workers
	Machines []Machine // the machines of all workers in the worker's networks
	Laptops  []Laptop  // the laptops in the worker's networks
}

// Networks manages the private networks of this host. network.Network implements it.
type Networks interface {
	// Networks returns false until the networks of machines that an earlier daemon left have been recovered.
	Networks() (names []string, ok bool)
	Changed() <-chan struct{}
	// AdmitPeers ensures that the host has rules for packets from peers.
	AdmitPeers(ctx context.Context) error
	SetRemotes(ctx context.Context, remotes []network.Remote, keep bool) error
}

// end is this host's end of the mesh. Device implements it.
type end interface {
	Apply(ctx context.Context, tag bourse.WorkerTag, peers []Peer, keep bool) error
	Status(peers []Peer) ([]bourse.MeshPeer, error)
	Exists() bool
	Ended() <-chan struct{}
}

var _ end = (*Device)(nil)

// Mesh maintains a worker's end of the mesh: its peers are always those that the view and the local machines call for.
type Mesh struct {
	self     bourse.WorkerID
	announce *bourse.Mesh
	device   end
	networks Networks
	view     View
	log      *slog.Logger

	mu    sync.Mutex
	peers []bourse.MeshPeer // by ID
	lost  map[bourse.WorkerID]bool
}

// New returns a Mesh for the worker with the given ID, which publishes announce. It changes nothing until Run is called.
func New(self bourse.WorkerID, announce *bourse.Mesh, device *Device, networks Networks, view View, log *slog.Logger) *Mesh {
	return &Mesh{self: self, announce: announce, device: device, networks: networks, view: view, log: log}
}

// Announcement returns what the worker publishes.
func (m *Mesh) Announcement() *bourse.Mesh { return m.announce }

// Peers returns the worker's connections to its peers, by ID, as of the last second.
func (m *Mesh) Peers() []bourse.MeshPeer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.peers)
}

// Reaches reports whether packets probably reach the machines of another worker: the worker is a peer, a handshake took
// place in the last minutes, and the membership has not lost the worker.
func (m *Mesh) Reaches(worker bourse.WorkerID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.peers, func(p bourse.MeshPeer) bool { return p.Worker == worker })
	return i >= 0 && m.peers[i].Reachable(time.Now()) && !m.lost[worker]
}

const (
	tick   = time.Second            // interval at which the connections are read, and the link is restored if necessary
	gather = 250 * time.Millisecond // minimum interval between two reactions to changes, because each one reads the view
)

// Run maintains the mesh until ctx ends. The link and its connections then remain. tag is this worker's.
func (m *Mesh) Run(ctx context.Context, tag bourse.WorkerTag) error {
	self := Worker{ID: m.self, Tag: tag, Mesh: m.announce}
	every := time.NewTicker(tick)
	defer every.Stop()
	var plan plan
	var failed error
	for changed := true; ; {
		begun := time.Now()
		err := m.step(ctx, self, changed, &plan)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && (failed == nil || err.Error() != failed.Error()) {
			m.log.Warn("connect private networks with other workers failed", "err", err)
		} else if err == nil && failed != nil {
			m.log.Info("private networks are connected with other workers again")
		}
		failed, changed = err, err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-m.view.Changed():
			changed = true
		case <-m.networks.Changed():
			changed = true
		case <-m.device.Ended():
		case now := <-every.C:
			changed = changed || plan.outdated(now)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather - time.Since(begun)):
		}
	}
}

// plan is a result of Plan.
type plan struct {
	peers []Peer
	until time.Time // when the next laptop expires; zero if there is none

	laptops bool // whether the peers that were last applied include laptops, so that the host has rules even without machines
}

// outdated reports whether a laptop has expired.
func (p *plan) outdated(now time.Time) bool { return !p.until.IsZero() && !now.Before(p.until) }

// step makes the peers those of a new plan or, if nothing has changed, of the last one. If the view cannot be read, step
// cuts off the laptops that have expired since.
func (m *Mesh) step(ctx context.Context, self Worker, changed bool, plan *plan) error {
	networks, ok := m.networks.Networks()
	if !ok {
		return nil // an earlier daemon's connections remain
	}
	whole := m.view.Whole()
	var unread error
	if changed {
		members, err := m.view.Members(ctx, m.self, networks)
		now := time.Now()
		switch {
		case err == nil:
			plan.peers, plan.until = Plan(now, self, networks, members.Workers, members.Machines, members.Laptops), time.Time{}
			for _, l := range members.Laptops {
				if l.ExpiresAt.After(now) && (plan.until.IsZero() || l.ExpiresAt.Before(plan.until)) {
					plan.until = l.ExpiresAt
				}
			}
			m.note(members.Workers)
		case plan.outdated(now):
			plan.peers = slices.DeleteFunc(plan.peers, func(p Peer) bool { return isLaptopPeer(p) && !now.Before(p.Expires) })
			unread = err
		default:
			return err
		}
	}
	// Without rules, the link must stay down while an earlier daemon's peers remain.
	withoutRules := !whole && len(networks) == 0 && !plan.laptops
	if len(plan.peers) == 0 && (withoutRules || !m.device.Exists()) {
		return unread
	}
	status, err := m.apply(ctx, self.Tag, plan.peers, !whole)
	if err == nil {
		plan.laptops = slices.ContainsFunc(plan.peers, isLaptopPeer)
	} else {
		status = disconnected(plan.peers)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers = status
	return errors.Join(unread, err)
}

func isLaptopPeer(p Peer) bool { return p.Worker == "" }

// apply applies a plan, and returns the connections. If keep is set, workers and machines that the plan lacks remain, but
// not laptops.
func (m *Mesh) apply(ctx context.Context, tag bourse.WorkerTag, plan []Peer, keep bool) ([]bourse.MeshPeer, error) {
	if len(plan) > 0 {
		if err := m.networks.AdmitPeers(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.device.Apply(ctx, tag, plan, keep); err != nil {
		return nil, err
	}
	var remotes []network.Remote
	for i := range plan {
		remotes = append(remotes, plan[i].remotes()...)
	}
	if err := m.networks.SetRemotes(ctx, remotes, keep); err != nil {
		return nil, err
	}
	return m.device.Status(plan)
}

// disconnected returns the connections of a worker whose end of the mesh does not work.
func disconnected(plan []Peer) []bourse.MeshPeer {
	var out []bourse.MeshPeer
	for _, p := range plan {
		if p.Worker != "" {
			out = append(out, bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines)})
		}
	}
	return out
}

// note remembers which workers the membership has lost.
func (m *Mesh) note(workers []Worker) {
	lost := map[bourse.WorkerID]bool{}
	for _, w := range workers {
		if w.Lost {
			lost[w.ID] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = lost
}
