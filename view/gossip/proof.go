package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// Proofs are how members prove what they say of themselves, where servers have
// certificates. A member whose signature has not been verified is in no list: the
// membership's key alone makes no one a member.
type Proofs interface {
	// Sign signs what this server says of itself.
	Sign(statement []byte) ([]byte, error)
	// Key returns the key by which the server at m's address signs. It has proven,
	// on a connection made for that, to have m's id and role.
	Key(ctx context.Context, m bourse.Member) (Key, error)
	// Names asks the server at m's address, which proves the same, for the names
	// that it has in the gossip.
	Names(ctx context.Context, m bourse.Member) ([]string, error)
}

// Key verifies what one server says.
type Key interface {
	Verify(statement, signature []byte) bool
	// HasTag reports whether the server may have a tag that does not follow from
	// its id.
	HasTag(tag bourse.WorkerTag) bool
}

// ahead is how far a member's clock may be ahead of ours: a life that begins
// later than that would outlast all others.
const ahead = time.Hour

// maxDoubtful bounds the members whose keys are to be fetched. Others that say
// what they like can keep real ones waiting, and cost no more than that.
const maxDoubtful = 4096

// identity is what a certificate proves.
type identity struct {
	id   bourse.WorkerID
	role bourse.Role
}

// proving is what a member knows of the others' keys. The roster's lock guards
// it.
type proving struct {
	keys     map[identity]Key
	doubtful map[string]*doubtful // by name
	refused  uint64               // members that have not proven what they say
}

// doubtful is a member whose key has to be fetched.
type doubtful struct {
	node  node
	tries int
	next  time.Time // when it may be tried again
	busy  bool
	wrong error // its key is known, and it has not proven what it says
}

// verdict is what is known of a member's proof.
type verdict int

const (
	proven   verdict = iota
	unknown          // its key has to be fetched: it is not known, or is another one by now
	unproven         // whatever its key is
)

// judge says what n's proof is worth. The lock is held.
func (m *Members) judge(n *node) (verdict, error) {
	if m.config.Proofs == nil || n.name == m.name {
		return proven, nil
	}
	if n.signature == nil {
		return unproven, bourse.Errorf(bourse.CodeForbidden, "it proves nothing of what it says")
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

// admit decides whether memberlist may know of what the gossip says of a member:
// an error when it may not. What is not proven yet may, and is in no list of
// ours.
func (m *Members) admit(peer *memberlist.Node, now time.Time) error {
	n, err := decodeNode(m.config.ClusterID, peer.Name, peer.Meta)
	if err != nil {
		return err
	}
	if err := n.timely(now); err != nil {
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
	if err := m.doubt(&n, now); err != nil {
		m.refused++
		return err
	}
	if known.proven { // until we know better what was proven counts
		return err
	}
	return nil
}

// timely reports CodeInvalid for what is said from the future.
func (n *node) timely(now time.Time) error {
	limit := uint64(now.Add(ahead).UnixMilli())
	boot, err := ulid.ParseStrict(n.boot)
	if err != nil || boot.Time() > limit || n.since > limit {
		return bourse.Errorf(bourse.CodeInvalid, "it says that it began, or said so, in the future: one of our clocks is wrong")
	}
	return nil
}

// setPeer notes where a member is, as memberlist says.
func (n *node) setPeer(peer *memberlist.Node) {
	n.gossip = joinHostPort(peer)
	copied := *peer // memberlist goes on writing to its own
	n.peer = &copied
}

// same reports whether two nodes of one name say the same.
func (n *node) same(other *node) bool {
	return n.gossip == other.gossip && bytes.Equal(n.peer.Meta, other.peer.Meta)
}

// doubt has a member's key fetched. The lock is held.
func (m *Members) doubt(n *node, now time.Time) error {
	d := m.doubtful[n.name]
	switch {
	case d == nil && len(m.doubtful) >= maxDoubtful:
		return bourse.Errorf(bourse.CodeRateLimited, "too many members have not proven who they are")
	case d == nil:
		m.doubtful[n.name] = &doubtful{node: *n}
		poke(m.unsure)
	case d.wrong != nil && d.node.same(n) && now.Before(d.next):
		return d.wrong
	default:
		d.node, d.wrong = *n, nil
		poke(m.unsure)
	}
	return nil
}

// Between fetches of a key that fail, and before a member that did not sign is
// looked at again.
const (
	minProofPause = 500 * time.Millisecond
	maxProofPause = 30 * time.Second
)

const (
	proofsAtOnce  = 16
	proofTimeout  = 3 * time.Second
	proofPatience = time.Second            // that a start waits for the proofs of those that it met
	proofsEvery   = 250 * time.Millisecond // looks for those whose pause is over
)

// prove fetches keys until ctx ends.
func (m *Members) prove(ctx context.Context) {
	slots := make(chan struct{}, proofsAtOnce)
	tick := time.NewTicker(proofsEvery)
	defer tick.Stop()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if d := m.nextDoubtful(time.Now()); d != nil {
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
		case <-m.unsure:
		case <-tick.C:
		}
	}
}

// nextDoubtful takes the one that was tried least.
func (m *Members) nextDoubtful(now time.Time) *doubtful {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next *doubtful
	for name, d := range m.doubtful {
		switch {
		case d.busy || now.Before(d.next):
		case d.wrong != nil, d.tries > 0 && m.nodes[name].name == "": // it may be looked at again, or has gone
			delete(m.doubtful, name)
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

// fetch fetches one key, and takes in what it proves.
func (m *Members) fetch(ctx context.Context, d *doubtful) {
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
		m.settleDoubts(to.ID)
		if err = d.wrong; err != nil {
			d.next = time.Now().Add(maxProofPause)
		}
	}
	if err != nil && ctx.Err() == nil && m.quiet.Due("unproven "+string(to.ID)) {
		m.config.Log.Warn("a member has not proven who it is", slog.Any("member", to.ID), slog.String("address", to.Address),
			slog.Uint64("refused", m.refused), slog.Any("err", err))
	}
	m.notify() // also of a failure: a start may wait for it
}

// settleDoubts looks again at what is said by those with an id whose key is known
// now. The lock is held.
func (m *Members) settleDoubts(id bourse.WorkerID) {
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
	for name, d := range m.doubtful {
		if d.node.member.ID != id {
			continue
		}
		switch v, err := m.judge(&d.node); {
		case v == proven: // what memberlist was not let know, perhaps
			delete(m.doubtful, name)
			d.node.proven = true
			m.enter(d.node)
		case err != nil:
			d.wrong = err
			m.refused++
		}
	}
}

// awaitProofs waits, not for long, until the keys of all that we met were asked
// for.
func (m *Members) awaitProofs(ctx context.Context) {
	if m.config.Proofs == nil {
		return
	}
	enough := time.NewTimer(proofPatience)
	defer enough.Stop()
	for {
		changed := m.Changed()
		if !m.untried() {
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

func (m *Members) untried() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.doubtful {
		if d.tries == 0 || d.tries == 1 && d.busy {
			return true
		}
	}
	return false
}
