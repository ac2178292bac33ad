package gossip

import (
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// maxFormer is the maximum number of remembered addresses of former members.
const maxFormer = 256

// delegate implements memberlist's callbacks. memberlist calls them while holding its own lock, so
// they must not block or call memberlist.
type delegate struct{ m *Members }

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
)

// NodeMeta returns this member's metadata, and records it for published.
func (d *delegate) NodeMeta(limit int) []byte {
	b, err := d.m.meta(time.Now())
	if err != nil {
		d.m.config.Log.Error("encode own metadata failed", slog.Any("err", err))
	}
	b = b[:min(len(b), limit)]
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	d.m.latest = b
	return b
}

// meta returns this member's current metadata.
func (m *Members) meta(now time.Time) ([]byte, error) {
	m.mu.Lock()
	b := encodeMeta(m.config.ClusterID, m.self.member, m.self.pending)
	m.self.since = max(m.self.since+1, uint64(now.UnixMilli())) // memberlist may deliver metadata out of order, so later metadata must have a greater time
	since := m.self.since
	m.mu.Unlock()
	if m.config.Proofs == nil {
		return b, nil
	}
	return signMeta(b, m.name, m.gossip, since, m.config.Proofs.Sign)
}

// NotifyAlive rejects an invalid member before it is added.
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

// NotifyJoin adds a member to the list.
func (d *delegate) NotifyJoin(peer *memberlist.Node) { d.m.putNode(peer) }

// NotifyUpdate updates a member's metadata.
func (d *delegate) NotifyUpdate(peer *memberlist.Node) { d.m.putNode(peer) }

// NotifyLeave removes a member that has left or is lost.
func (d *delegate) NotifyLeave(peer *memberlist.Node) { d.m.drop(peer, time.Now()) }

// NotifyConflict logs that two members have the same name. Since a name contains the boot, one of
// them is an impostor.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.m.quiet.Due("conflict " + existing.Name) {
		d.m.config.Log.Error("two servers use one member's name", slog.String("member", existing.Name),
			slog.String("address", joinHostPort(existing)), slog.String("other", joinHostPort(other)))
	}
}

// NotifyMsg receives a rumor.
func (d *delegate) NotifyMsg(message []byte) { d.m.config.Rumors.Receive(message) }

// GetBroadcasts returns rumors for the free space in a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.m.config.Rumors.Next(overhead, limit)
}

// LocalState returns nil: the push/pull exchange carries only the membership. The view is replicated separately, with
// limits on its size.
func (*delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores the remote state, which is always empty.
func (*delegate) MergeRemoteState([]byte, bool) {}

// putNode adds or updates a member as reported by the gossip.
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

// addNode adds a member to the list. A proven member is replaced only by proven metadata that is not
// older. The caller holds the lock.
func (m *Members) addNode(n node) {
	known := m.nodes[n.name]
	if known.proven && (!n.proven || n.since < known.since) {
		return
	}
	m.nodes[n.name] = n
	delete(m.former, n.gossip)
	delete(m.ignored, n.gossip)
	m.stale.Store(true)
	m.notify()
}

// drop removes a member. It records the member as lost unless another boot of the same server is
// in the list.
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
	}
	m.stale.Store(true)
	m.notify()
}

// hasOtherBoot reports whether the list contains another boot of n's server that satisfies the
// given condition.
func (m *Members) hasOtherBoot(n node, is func(node) bool) bool {
	for _, other := range m.nodes {
		if other.member.ID == n.member.ID && is(other) {
			return true
		}
	}
	return false
}

// notify wakes Run and all other goroutines that wait for a change. The caller
// holds the lock.
func (m *Members) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
	poke(m.watchWork)
}

// poke sends to a channel with capacity 1 unless it is full.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
