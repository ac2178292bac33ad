package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// Proofs signs this server's metadata and fetches the keys that verify other members' metadata. It is used in a cluster
// whose servers have certificates. A member is listed only once its signature has been verified. A server that merely
// has the group's encryption key is not listed.
type Proofs interface {
	// Sign signs a statement with the key of this server's certificate.
	Sign(statement []byte) ([]byte, error)
	// Key returns the public key of the server at m's address. It must connect to the server and
	// verify that the server has m's id and role.
	Key(ctx context.Context, m bourse.Member) (Key, error)
	// Names returns the gossip names of the server at m's address. Like Key, it must verify the
	// server's id and role.
	Names(ctx context.Context, m bourse.Member) ([]string, error)
}

// Key verifies statements that were signed by one server.
type Key interface {
	Verify(statement, signature []byte) bool
	// HasTag reports whether the server may use a tag that is not derived from its id.
	HasTag(tag bourse.WorkerTag) bool
}

// maxClockSkew is how far a member's clock may be ahead of this server's clock. Without this limit, a
// boot that claims to have started in the distant future would take precedence over all later boots.
const maxClockSkew = time.Hour

// maxUnverified is the maximum number of members whose keys still have to be fetched. If impostors
// reach this limit, they can only delay real members.
const maxUnverified = 4096

// identity contains the id and role of a server, as proven by its certificate.
type identity struct {
	id   bourse.WorkerID
	role bourse.Role
}

// keyring contains the keys of other members that have been fetched. It is guarded by the
// memberList's lock.
type keyring struct {
	keys       map[identity]Key
	unverified map[string]*unverified // members whose keys have to be fetched, by gossip name
	refused    uint64                 // number of times that a member was refused because it did not have a valid proof
}

// unverified is a member that cannot be listed until its key has been fetched.
type unverified struct {
	node    node
	tries   int
	next    time.Time // earliest time of the next attempt to fetch the key
	busy    bool
	invalid error // reason why the proof is invalid; nil if it has not been checked with the server's key yet
}

// verdict is the result of judge.
type verdict int

const (
	proven   verdict = iota
	unknown          // the server's key has to be fetched, because it is unknown or may have changed
	unproven         // the proof is invalid regardless of the key
)

// judge checks whether n's metadata is proven. The caller holds the lock.
func (m *Members) judge(n *node) (verdict, error) {
	if m.config.Proofs == nil || n.name == m.name {
		return proven, nil
	}
	if n.signature == nil {
		return unproven, bourse.Errorf(bourse.CodeForbidden, "its metadata is not signed")
	}
	key := m.keys[identity{n.member.ID, n.member.Role}]
	switch {
	case key == nil:
		return unknown, nil
	case !key.Verify(statement(n.name, n.gossip, n.signed), n.signature):
		return unknown, bourse.Errorf(bourse.CodeForbidden, "it is not signed with the key of its certificate")
	case n.member.Tag != 0 && n.member.ID.TagRank(n.member.Tag) == bourse.TagChoices && !key.HasTag(n.member.Tag):
		return unproven, bourse.Errorf(bourse.CodeForbidden, "tag %s does not belong to %s", n.member.Tag, n.member.ID)
	}
	return proven, nil
}

// admit returns an error if memberlist must not add or update a member. It admits members whose
// signatures have not been verified yet, but Members does not list
// them until they are.
func (m *Members) admit(peer *memberlist.Node, now time.Time) error {
	n, err := decodeNode(m.config.ClusterID, peer.Name, peer.Meta)
	if err != nil {
		return err
	}
	if err := n.checkTime(now); err != nil {
		return err
	}
	n.setPeer(peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.nodes[n.name]
	if known.proven && known.same(&n) {
		return nil
	}
	v, err := m.judge(&n)
	switch v {
	case proven:
		return nil
	case unproven:
		m.refused++
		return err
	case unknown:
	}
	if err := m.scheduleCheck(&n, now); err != nil {
		m.refused++
		return err
	}
	if known.proven { // the proven metadata remains valid until the new metadata has been checked
		return err
	}
	return nil
}

// checkTime returns CodeInvalid if the node's boot or its metadata was created too far in the
// future.
func (n *node) checkTime(now time.Time) error {
	limit := uint64(now.Add(maxClockSkew).UnixMilli())
	boot, err := ulid.ParseStrict(n.boot)
	if err != nil || boot.Time() > limit || n.since > limit {
		return bourse.Errorf(bourse.CodeInvalid, "its start or metadata is in the future: the clock of one of the servers is wrong")
	}
	return nil
}

// setPeer stores memberlist's data about the member in n. It copies the data.
func (n *node) setPeer(peer *memberlist.Node) {
	n.gossip = joinHostPort(peer)
	copied := *peer // memberlist continues to change its own copy
	n.peer = &copied
}

// same reports whether n and other, which have the same name, also have the same address and
// metadata.
func (n *node) same(other *node) bool {
	return n.gossip == other.gossip && bytes.Equal(n.peer.Meta, other.peer.Meta)
}

// scheduleCheck queues a member, so that prove fetches the key of its server. The caller holds the lock.
func (m *Members) scheduleCheck(n *node, now time.Time) error {
	d := m.unverified[n.name]
	switch {
	case d == nil && len(m.unverified) >= maxUnverified:
		return bourse.Errorf(bourse.CodeRateLimited, "too many members have not proven their identity")
	case d == nil:
		m.unverified[n.name] = &unverified{node: *n}
		poke(m.fetchKeys)
	case d.invalid != nil && d.node.same(n) && now.Before(d.next):
		return d.invalid
	default:
		d.node, d.invalid = *n, nil
		poke(m.fetchKeys)
	}
	return nil
}

// Bounds on the delay before a failed fetch of a key is retried. The upper bound is also the delay before a member with
// an invalid signature is checked again.
const (
	minProofPause = 500 * time.Millisecond
	maxProofPause = 30 * time.Second
)

const (
	proofConcurrency = 16
	proofTimeout     = 3 * time.Second
	maxProofWait     = time.Second            // how long a member that starts waits for the other members' proofs
	proofInterval    = 250 * time.Millisecond // interval at which to check whether failed fetches are due again
)

// prove fetches the keys of unverified members until ctx is done.
func (m *Members) prove(ctx context.Context) {
	slots := make(chan struct{}, proofConcurrency)
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if d := m.nextUnverified(time.Now()); d != nil {
			m.work.Go(func() {
				defer func() { <-slots }()
				m.fetch(ctx, d)
			})
			continue
		}
		<-slots
		select {
		case <-ctx.Done():
			return
		case <-m.fetchKeys:
		case <-tick.C:
		}
	}
}

// nextUnverified returns the next member to fetch a key from: the due member with the fewest
// attempts. It returns nil if no member is due.
func (m *Members) nextUnverified(now time.Time) *unverified {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next *unverified
	for name, d := range m.unverified {
		switch {
		case d.busy || now.Before(d.next):
		case d.invalid != nil, d.tries > 0 && m.nodes[name].name == "": // the delay after an invalid signature has passed, or the member is gone
			delete(m.unverified, name)
		case next == nil || d.tries < next.tries:
			next = d
		}
	}
	if next != nil {
		next.busy = true
		next.tries++
	}
	return next
}

// fetch fetches the key of a member's server and then checks all members that have the server's id.
func (m *Members) fetch(ctx context.Context, d *unverified) {
	limited, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	m.mu.Lock()
	to := d.node.member
	m.mu.Unlock()
	key, err := m.config.Proofs.Key(limited, to)
	m.mu.Lock()
	defer m.mu.Unlock()
	d.busy = false
	d.next = time.Now().Add(min(minProofPause<<min(d.tries-1, 10), maxProofPause))
	if err == nil {
		m.keys[identity{to.ID, to.Role}] = key
		m.recheckUnverified(to.ID)
		if err = d.invalid; err != nil {
			d.next = time.Now().Add(maxProofPause)
		}
	}
	if err != nil && ctx.Err() == nil && m.quiet.Due("unproven "+string(to.ID)) {
		m.config.Log.Warn("member has not proven its identity", slog.Any("member", to.ID), slog.String("address", to.Address),
			slog.Uint64("refused", m.refused), slog.Any("err", err))
	}
	m.notify() // also if the fetch has failed, because awaitProofs may be waiting for the attempt
}

// recheckUnverified checks the members with this id again. It is called after their server's key
// has been fetched. The caller holds the lock.
func (m *Members) recheckUnverified(id bourse.WorkerID) {
	for name, n := range m.nodes {
		if n.member.ID != id || n.proven {
			continue
		}
		if v, _ := m.judge(&n); v == proven {
			n.proven = true
			m.nodes[name] = n
			m.stale.Store(true)
		}
	}
	for name, d := range m.unverified {
		if d.node.member.ID != id {
			continue
		}
		switch v, err := m.judge(&d.node); {
		case v == proven:
			delete(m.unverified, name)
			if m.nodes[name].name != "" { // do not add a member that is gone: its server has stopped, and memberlist would never remove it
				d.node.proven = true
				m.addNode(d.node) // admit has refused memberlist's update of this member
			}
		case err != nil:
			d.invalid = err
			m.refused++
		}
	}
}

// KeyOf returns the key that a member used to prove its identity. It returns nil for this server
// itself, or if Config.Proofs is not set.
func (m *Members) KeyOf(member bourse.Member) Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[identity{member.ID, member.Role}]
}

// Recheck removes the members with the given ID from the list until they have proven their identity
// again. It does nothing if Config.Proofs is not set.
func (m *Members) Recheck(id bourse.WorkerID) {
	if m.config.Proofs == nil || id == m.config.Self.ID {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.keys, func(who identity, _ Key) bool { return who.id == id })
	now := time.Now()
	for name, n := range m.nodes {
		if n.member.ID != id {
			continue
		}
		n.proven = false
		m.nodes[name] = n
		if err := m.scheduleCheck(&n, now); err != nil && m.quiet.Due("unproven "+string(id)) {
			m.config.Log.Warn("member has not proven its identity", slog.Any("member", id), slog.Any("err", err))
		}
	}
	m.stale.Store(true)
	m.notify()
}

// awaitProofs waits until each missing key has been fetched or an attempt to fetch it has failed,
// but for at most maxProofWait.
func (m *Members) awaitProofs(ctx context.Context) {
	if m.config.Proofs == nil {
		return
	}
	enough := time.NewTimer(maxProofWait)
	defer enough.Stop()
	for {
		changed := m.Changed()
		if !m.hasUntriedKey() {
			return
		}
		select {
		case <-changed:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (m *Members) hasUntriedKey() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.unverified {
		if d.tries == 0 || d.tries == 1 && d.busy {
			return true
		}
	}
	return false
}
