package mesh

import (
	"context"
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
	// Members returns all workers, and the machines of all workers in these networks.
	Members(ctx context.Context, networks []string) ([]Worker, []Machine, error)
	// Whole reports whether the view has received the whole cluster since this daemon's start. Until then, Members may
	// lack workers and machines.
	Whole() bool
	// Changed returns a channel that contains an element if the result of Members may have changed. It is always the same
	// channel.
	Changed() <-chan struct{}
}

// Networks manages the private networks of this host. network.Network implements it.
type Networks interface {
	// Networks returns false until the networks of machines that an earlier daemon left have been recovered.
	Networks() (names []string, ok bool)
	Changed() <-chan struct{}
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
	var plan []Peer
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
		case <-every.C:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather - time.Since(begun)):
		}
	}
}

// step makes the peers those of a new plan or, if nothing has changed, of the last one.
func (m *Mesh) step(ctx context.Context, self Worker, changed bool, plan *[]Peer) error {
	networks, ok := m.networks.Networks()
	if !ok {
		return nil // an earlier daemon's connections remain
	}
	whole := m.view.Whole()
	if changed || len(networks) == 0 {
		var workers []Worker
		var machines []Machine
		if len(networks) > 0 {
			var err error
			if workers, machines, err = m.view.Members(ctx, networks); err != nil {
				return err
			}
		}
		*plan = Plan(self, networks, workers, machines)
		m.note(workers)
	}
	if len(*plan) == 0 && (!whole || !m.device.Exists()) {
		return nil // in the first case, an earlier daemon's connections remain
	}
	status, err := m.apply(ctx, self.Tag, *plan, !whole)
	if err != nil {
		status = disconnected(*plan)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers = status
	return err
}

// apply applies a plan, and returns the connections. If keep is set, peers and machines that the plan lacks remain.
func (m *Mesh) apply(ctx context.Context, tag bourse.WorkerTag, plan []Peer, keep bool) ([]bourse.MeshPeer, error) {
	if err := m.device.Apply(ctx, tag, plan, keep); err != nil {
		return nil, err
	}
	var remotes []network.Remote
	for _, p := range plan {
		remotes = append(remotes, p.Machines...)
	}
	if err := m.networks.SetRemotes(ctx, remotes, keep); err != nil {
		return nil, err
	}
	return m.device.Status(plan)
}

// disconnected returns the connections of a worker whose end of the mesh does not work.
func disconnected(plan []Peer) []bourse.MeshPeer {
	out := make([]bourse.MeshPeer, len(plan))
	for i, p := range plan {
		out[i] = bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines)}
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
