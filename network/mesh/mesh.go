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
	Command  []string // required; the command that runs Serve. Dir is appended to it as the last argument
	Identity Identity
	Port     uint16 // UDP port
	MTU      int    // the link's MTU; see the function MTU
	Log      *slog.Logger
}

// View provides data about the cluster. The data may be outdated, but every machine's network is confirmed by a
// broker's signature.
type View interface {
	// Members returns the workers, machines and laptops from which the peers of the worker self are computed. It covers
	// the given networks, in which self has machines, and the networks of the laptops that connect through self.
	Members(ctx context.Context, self bourse.WorkerID, networks []string) (Members, error)
	// Whole reports whether the view has received all of the cluster's data since this daemon started. Until then,
	// workers and machines may be missing from Members.
	Whole() bool
	// Changed returns a channel that receives a value when the result of Members may have changed. All calls return the
	// same channel.
	Changed() <-chan struct{}
}

// Members is the part of the view that concerns one worker and its networks.
type Members struct {
	Workers  []Worker  // all workers
	Machines []Machine // the machines in the worker's networks, on all workers
	Laptops  []Laptop  // the laptops in the worker's networks
}

// Networks manages the private networks of this host. network.Network implements it.
type Networks interface {
	// Networks returns the names of the private networks of this host's machines. It returns false until an earlier
	// daemon's networks have been recovered.
	Networks() (names []string, ok bool)
	Changed() <-chan struct{}
	// AdmitPeers ensures that the host has firewall rules for packets from peers.
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

// Mesh maintains a worker's end of the mesh: it updates the worker's peers when the view or the local machines change.
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

// New returns a Mesh for the worker with the given ID. announce is the data that the worker publishes about its end of
// the mesh. The Mesh does not change anything until Run is called.
func New(self bourse.WorkerID, announce *bourse.Mesh, device *Device, networks Networks, view View, log *slog.Logger) *Mesh {
	return &Mesh{self: self, announce: announce, device: device, networks: networks, view: view, log: log}
}

// Announcement returns the data that the worker publishes about its end of the mesh.
func (m *Mesh) Announcement() *bourse.Mesh { return m.announce }

// Peers returns the state of the worker's connections to other workers, sorted by ID. The data is at most about a
// second old.
func (m *Mesh) Peers() []bourse.MeshPeer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.peers)
}

// Reaches reports whether packets probably reach another worker's machines. This is the case if the other worker is a
// peer, its last handshake was recent, and the membership has not lost contact with it.
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

// Run maintains the mesh until ctx is done. The link and its connections remain after that. tag is this worker's tag.
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
			m.log.Warn("connect private networks to other workers failed", "err", err)
		} else if err == nil && failed != nil {
			m.log.Info("private networks connected to other workers again")
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

// plan contains the peers most recently returned by Plan, and data about the laptops among them.
type plan struct {
	peers []Peer
	until time.Time // when the next laptop expires; zero if there is none

	laptops bool // whether the peers that were last applied include laptops; the host then has rules even without machines
}

// outdated reports whether a laptop has expired since the plan was made.
func (p *plan) outdated(now time.Time) bool { return !p.until.IsZero() && !now.Before(p.until) }

// step computes a new plan if anything has changed, and applies the current plan. If the view cannot be read, step
// removes laptops that have expired since the last plan.
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
	// As long as the host has no firewall rules, an earlier daemon's peers must not be able to send packets, so the
	// link must stay down.
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

// apply configures the peers in plan, and returns the state of the connections to them. If keep is set, workers and
// machines that are missing from the plan are kept, but missing laptops are removed.
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

// disconnected returns the state to report for the workers in plan if this worker's end of the mesh does not work.
func disconnected(plan []Peer) []bourse.MeshPeer {
	var out []bourse.MeshPeer
	for _, p := range plan {
		if p.Worker != "" {
			out = append(out, bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines)})
		}
	}
	return out
}

// note records which workers the membership has lost contact with.
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
