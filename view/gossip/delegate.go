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

// NodeMeta returns what we say of ourselves.
func (d *delegate) NodeMeta(limit int) []byte {
	b, err := d.m.meta(time.Now())
	if err != nil {
		d.m.config.Log.Error("what we say of ourselves cannot be written", slog.Any("err", err))
	}
	return b[:min(len(b), limit)]
}

// meta is what we say of ourselves now.
func (m *Members) meta(now time.Time) ([]byte, error) {
	m.mu.Lock()
	b := encodeMeta(m.config.ClusterID, m.self.member, m.self.pending)
	m.self.since = max(m.self.since+1, uint64(now.UnixMilli())) // memberlist passes on what was said in any order
	since := m.self.since
	m.mu.Unlock()
	if m.config.Proofs == nil {
		return b, nil
	}
	return signMeta(b, m.name, m.gossip, since, m.config.Proofs.Sign)
}

// NotifyAlive refuses what cannot be a member of ours, before it becomes one.
func (d *delegate) NotifyAlive(peer *memberlist.Node) error {
	err := d.m.admit(peer, time.Now())
	if err != nil {
		d.m.noteIgnored(joinHostPort(peer), err)
	}
	if err != nil && d.m.quiet.Due("refused "+peer.Name) {
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

// NotifyConflict is called for two members with one name: since a name has its
// boot in it, one of them is an impostor.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.m.quiet.Due("conflict " + existing.Name) {
		d.m.config.Log.Error("two servers use one member's name", slog.String("member", existing.Name),
			slog.String("address", joinHostPort(existing)), slog.String("other", joinHostPort(other)))
	}
}

// NotifyMsg takes a rumour.
func (d *delegate) NotifyMsg(message []byte) { d.m.config.Rumours.Receive(message) }

// GetBroadcasts returns rumours, for the space that the membership leaves in a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.m.config.Rumours.Next(overhead, limit)
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
	n.setPeer(peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	v, _ := m.judge(&n)
	n.proven = v == proven
	m.enter(n)
}

// enter takes a member into the list. What is proven gives way only to what is
// proven and not older. The lock is held.
func (m *Members) enter(n node) {
	known := m.nodes[n.name]
	if known.proven && (!n.proven || n.since < known.since) {
		return
	}
	m.nodes[n.name] = n
	delete(m.gone, n.gossip)
	delete(m.ignored, n.gossip)
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
	delete(m.doubtful, peer.Name)
	if !m.livesOn(n, func(node) bool { return true }) {
		delete(m.keys, identity{n.member.ID, n.member.Role})
	}
	if n.name == m.name {
		return // we are leaving ourselves
	}
	if len(m.gone) >= maxGone {
		m.gone = map[string]time.Time{}
	}
	m.gone[n.gossip] = now
	settled := func(other node) bool { return other.proven && !other.pending }
	if settled(n) && !m.livesOn(n, settled) {
		m.lost = append(m.lost, loss{n.member, now})
	}
	m.stale.Store(true)
	m.notify()
}

// livesOn reports whether another life of n's server is in the list, and is what
// is asked for.
func (m *Members) livesOn(n node, is func(node) bool) bool {
	for _, other := range m.nodes {
		if other.member.ID == n.member.ID && is(other) {
			return true
		}
	}
	return false
}

// notify wakes Run and all that wait for a change. The lock is held.
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
