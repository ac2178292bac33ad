package gossip

import (
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// maxGone bounds the addresses that are remembered of members that went.
const maxGone = 256

// delegate is what memberlist calls, with its own lock held: nothing here
// blocks or calls it back.
type delegate struct{ m *Members }

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
)

// NodeMeta gives what we say of ourselves.
func (d *delegate) NodeMeta(limit int) []byte {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	b := encodeMeta(d.m.config.ClusterID, d.m.self.member, d.m.self.pending)
	return b[:min(len(b), limit)]
}

// NotifyAlive refuses what cannot be a member of ours, before it becomes one.
func (d *delegate) NotifyAlive(peer *memberlist.Node) error {
	_, err := decodeNode(d.m.config.ClusterID, peer.Name, peer.Meta)
	if err != nil && d.m.quiet.due("refused "+peer.Name, time.Now()) {
		d.m.config.Log.Warn("a member is ignored", slog.String("member", bourse.Quoted(peer.Name)), slog.String("address", joinHostPort(peer)), slog.Any("err", err))
	}
	return err
}

// NotifyJoin takes a member into the list.
func (d *delegate) NotifyJoin(peer *memberlist.Node) { d.m.put(peer) }

// NotifyUpdate takes what a member says of itself now.
func (d *delegate) NotifyUpdate(peer *memberlist.Node) { d.m.put(peer) }

// NotifyLeave takes a member out of the list: it has left, or is lost.
func (d *delegate) NotifyLeave(peer *memberlist.Node) { d.m.drop(peer, time.Now()) }

// NotifyConflict hears of two members with one name: since a name has its boot
// in it, somebody plays a member.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.m.quiet.due("conflict "+existing.Name, time.Now()) {
		d.m.config.Log.Error("somebody else uses a member's name", slog.String("member", existing.Name),
			slog.String("address", joinHostPort(existing)), slog.String("other", joinHostPort(other)))
	}
}

// NotifyMsg takes a rumour.
func (d *delegate) NotifyMsg(message []byte) { d.m.config.Rumours.Hear(message) }

// GetBroadcasts gives rumours, for what room the membership leaves in a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.m.config.Rumours.Tell(overhead, limit)
}

// LocalState has nothing to compare beside the membership: the view has its
// own ways, with a limit on their size.
func (*delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what we do not send.
func (*delegate) MergeRemoteState([]byte, bool) {}

// put takes in what the gossip says of a member.
func (m *Members) put(peer *memberlist.Node) {
	n, err := decodeNode(m.config.ClusterID, peer.Name, peer.Meta)
	if err != nil {
		return // NotifyAlive has refused it
	}
	n.gossip = joinHostPort(peer)
	copied := *peer // memberlist goes on writing to its own
	n.peer = &copied
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[n.name] = n
	delete(m.gone, n.gossip)
	m.stale.Store(true)
	m.notify()
}

// drop takes out a member that went. It is lost unless another life of it is
// there.
func (m *Members) drop(peer *memberlist.Node, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[peer.Name]
	if !ok {
		return
	}
	delete(m.nodes, peer.Name)
	if n.name == m.name {
		return // we are leaving ourselves
	}
	if len(m.gone) >= maxGone {
		m.gone = map[string]time.Time{}
	}
	m.gone[n.gossip] = now
	if !n.pending && !m.livesOn(n) {
		m.lost = append(m.lost, loss{n.member, now})
	}
	m.stale.Store(true)
	m.notify()
}

// livesOn tells whether another life of n's server is in the list.
func (m *Members) livesOn(n node) bool {
	for _, other := range m.nodes {
		if other.member.ID == n.member.ID && !other.pending {
			return true
		}
	}
	return false
}

// notify tells Run and everyone who waits for a change. The lock is held.
func (m *Members) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
	poke(m.noticed)
}

// poke puts one into a channel that holds one.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
