package gossip

import (
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// maxFormer is the maximum number of former members whose addresses are remembered.
const maxFormer = 256

// delegate implements memberlist's callbacks. memberlist holds its own lock when it calls them, so
// they must not block or call memberlist.
type delegate struct{ m *Members }

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
)

// NodeMeta returns this member's metadata. It also records the metadata, so that [Members.published] can check whether
// memberlist has accepted it.
func (d *delegate) NodeMeta(limit int) []byte {
	b, err := d.m.meta(time.Now())
	if err != nil {
		d.m.config.Log.Error("encode member metadata failed", slog.Any("err", err))
	}
	b = b[:min(len(b), limit)]
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	d.m.latest = b
	return b
}

// meta returns this member's current metadata in encoded form, signed if the config contains
// Proofs.
func (m *Members) meta(now time.Time) ([]byte, error) {
	m.mu.Lock()
	b := encodeMeta(m.config.ClusterID, m.self.member, m.self.pending)
	m.self.since = max(m.self.since+1, uint64(now.UnixMilli())) // memberlist may deliver metadata out of order, so newer metadata must have a greater time
	since := m.self.since
	m.mu.Unlock()
	if m.config.Proofs == nil {
		return b, nil
	}
	return signMeta(b, m.name, m.gossip, since, m.config.Proofs.Sign)
}

// NotifyAlive returns an error if a member must not be added or updated.
func (d *delegate) NotifyAlive(peer *memberlist.Node) error {
	err := d.m.admit(peer, time.Now())
	if err != nil {
		d.m.recordIgnored(joinHostPort(peer), err)
	}
	if err != nil && d.m.quiet.Due("refused "+peer.Name) {
		d.m.config.Log.Warn("member ignored", slog.String("member", bourse.Quoted(peer.Name)), slog.String("address", joinHostPort(peer)), slog.Any("err", err))
	}
	return err
}

// NotifyJoin adds a new member to the list.
func (d *delegate) NotifyJoin(peer *memberlist.Node) { d.m.putNode(peer) }

// NotifyUpdate updates a member in the list.
func (d *delegate) NotifyUpdate(peer *memberlist.Node) { d.m.putNode(peer) }

// NotifyLeave removes a member that has left or is lost.
func (d *delegate) NotifyLeave(peer *memberlist.Node) { d.m.drop(peer, time.Now()) }

// NotifyConflict logs that two servers use the same member name. Since a name identifies a single
// boot of a server, one of them must be an impostor.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.m.quiet.Due("conflict " + existing.Name) {
		d.m.config.Log.Error("two servers use the same member name", slog.String("member", existing.Name),
			slog.String("address", joinHostPort(existing)), slog.String("other", joinHostPort(other)))
	}
}

// NotifyMsg receives a rumor.
func (d *delegate) NotifyMsg(message []byte) { d.m.config.Rumors.Receive(message) }

// GetBroadcasts returns rumors for the free space in a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.m.config.Rumors.Next(overhead, limit)
}

// LocalState returns nil, because a push/pull exchanges only the membership. The view is replicated separately, with
// limits on the size of messages.
func (*delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState does nothing, because the state of other members is always empty.
func (*delegate) MergeRemoteState([]byte, bool) {}

// putNode adds or updates a member that memberlist has reported.
func (m *Members) putNode(peer *memberlist.Node) {
	n, err := decodeNode(m.config.ClusterID, peer.Name, peer.Meta)
	if err != nil {
		return // NotifyAlive has already rejected this member
	}
	n.setPeer(peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	v, _ := m.judge(&n)
	n.proven = v == proven
	m.addNode(n)
}

// addNode adds a member to the list, or updates it. If the listed member is proven, only proven
// metadata that is not older can replace it. The caller holds the lock.
func (m *Members) addNode(n node) {
	known := m.nodes[n.name]
	if known.proven && (!n.proven || n.since < known.since) {
		return
	}
	m.nodes[n.name] = n
	delete(m.former, n.gossip)
	delete(m.ignored, n.gossip)
	if n.proven && !n.pending {
		delete(m.stopped, n.member.ID)
	}
	m.stale.Store(true)
	m.notify()
}

// drop removes a member from the list. It records the member as lost, unless the list contains
// another boot of the same server.
func (m *Members) drop(peer *memberlist.Node, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[peer.Name]
	if !ok {
		return
	}
	delete(m.nodes, peer.Name)
	delete(m.unverified, peer.Name)
	if !m.hasOtherBoot(n, func(node) bool { return true }) {
		delete(m.keys, identity{n.member.ID, n.member.Role})
	}
	if n.name == m.name {
		return // this member is leaving
	}
	if len(m.former) >= maxFormer {
		m.former = map[string]time.Time{}
	}
	m.former[n.gossip] = now
	settled := func(other node) bool { return other.proven && !other.pending }
	if settled(n) && !m.hasOtherBoot(n, settled) {
		m.lost = append(m.lost, loss{n.member, now})
		if n.member.Leaving && len(m.stopped) < maxFormer {
			m.stopped[n.member.ID] = true
		}
	}
	m.stale.Store(true)
	m.notify()
}

// hasOtherBoot reports whether the list contains another boot of n's server that satisfies a
// condition. n itself must no longer be in the list.
func (m *Members) hasOtherBoot(n node, condition func(node) bool) bool {
	for _, other := range m.nodes {
		if other.member.ID == n.member.ID && condition(other) {
			return true
		}
	}
	return false
}

// notify wakes all goroutines that wait for a change to the list, including the one that runs watch. The caller holds
// the lock.
func (m *Members) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
	poke(m.watchWork)
}

// poke sends to a channel of capacity 1, unless the channel is full.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
