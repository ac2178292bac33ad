package gossip

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Members is this server's list of the members of its cluster, itself
// included. All methods are safe for concurrent use; the answers are as good
// as the last gossip.
type Members struct {
	config Config
	name   string // ours in the group
	list   *memberlist.Memberlist
	gossip string // our address in the group
	quiet  *quiet.Lines

	keyring *Keys

	ready   chan struct{}   // closed by Run
	noticed chan struct{}   // holds one when there is something for Run
	changes chan struct{}   // holds one when there is something to publish
	unsure  chan struct{}   // holds one when a key is to be fetched
	work    sync.WaitGroup  // that fetches keys
	silent  map[string]bool // addresses to join that were logged not to answer; of the goroutine that calls

	roster
}

// roster is the list itself.
type roster struct {
	stale   atomic.Bool // current does not hold a member that came, went or changed
	current atomic.Pointer[snapshot]

	mu      sync.Mutex // taken inside memberlist's own lock
	self    node       // what we say of ourselves
	nodes   map[string]node
	gone    map[string]time.Time // gossip addresses of members that went, and when
	ignored map[string]error     // gossip addresses of servers that are no members, and why
	lost    []loss               // that OnLost has not been called for
	changed chan struct{}        // closed at the next change
	proving
}

type loss struct {
	member bourse.Member
	at     time.Time
}

// Open binds the member's gossip address: from now on it can be joined. It
// joins no one before Run. CodeInvalid means the config, CodeAlreadyExists that
// another process listens there. What was opened ends with Run, or with Close.
func Open(c Config) (*Members, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	boot := string(bourse.NewInstanceID()) // a ULID: later lives have greater ones
	m := &Members{
		config:  c,
		name:    nodeName(c.Self.ID, boot),
		quiet:   &quiet.Lines{},
		ready:   make(chan struct{}),
		noticed: make(chan struct{}, 1),
		changes: make(chan struct{}, 1),
		unsure:  make(chan struct{}, 1),
		silent:  map[string]bool{},
	}
	m.keys, m.doubtful = map[identity]Key{}, map[string]*doubtful{}
	m.nodes, m.gone, m.changed = map[string]node{}, map[string]time.Time{}, make(chan struct{})
	m.self = node{name: m.name, boot: boot, member: c.Self, pending: true}
	m.self.member.Free = nil
	m.current.Store(build(nil, m.name))
	var err error
	if m.keyring, err = NewKeys(c.keys()); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	transport, err := m.transport()
	if err != nil {
		return nil, err
	}
	list, err := memberlist.Create(c.gossip(m.name, transport, &delegate{m}, gossipLog{c.Log, m.quiet}))
	if err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeInternal, "gossip on %s: %w", c.Bind, err), transport.Shutdown())
	}
	m.list = list
	m.gossip = list.LocalNode().Address()
	if c.Proofs == nil {
		return m, nil
	}
	if _, err = m.meta(time.Now()); err == nil {
		err = list.UpdateNode(publishTimeout) // signs with the address, which is known now
	}
	if err != nil {
		return nil, errors.Join(err, list.Shutdown())
	}
	return m, nil
}

// Close ends a member that was opened and is not running.
func (m *Members) Close() error { return m.list.Shutdown() }

// Addr returns the address at which others join this member.
func (m *Members) Addr() string { return m.gossip }

// Ready is closed once Run has called the members it was to join, one answered
// or none did, and has found its id free. Before that the others do not list
// this member.
func (m *Members) Ready() <-chan struct{} { return m.ready }

// Changed returns a channel that is closed at the next change of the list. Take
// it before reading the list, or a change may be missed.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Members returns every member, sorted by id. The slice is the caller's.
func (m *Members) Members() []bourse.Member { return slices.Clone(m.snapshot().members) }

// Workers returns every worker, sorted by id, also those that take no orders.
// The slice is the caller's.
func (m *Members) Workers() []bourse.Member {
	return slices.DeleteFunc(m.Members(), func(x bourse.Member) bool { return x.Role != bourse.RoleWorker })
}

// Worker returns the worker with this id.
func (m *Members) Worker(id bourse.WorkerID) (bourse.Member, bool) {
	s := m.snapshot()
	i, ok := s.byID[id]
	if !ok || s.members[i].Role != bourse.RoleWorker {
		return bourse.Member{}, false
	}
	return s.members[i], true
}

// ByTag returns the worker whose machines' ids begin with this tag.
func (m *Members) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	s := m.snapshot()
	i, ok := s.byTag[tag]
	if !ok {
		return bourse.Member{}, false
	}
	return s.members[i], true
}

// Regions returns every region that has a worker, sorted. The slice is the
// caller's.
func (m *Members) Regions() []bourse.Region { return slices.Clone(m.snapshot().regions) }

// Candidates returns the workers of a region that take orders. The slice is the
// caller's.
func (m *Members) Candidates(region bourse.Region) []bourse.Member {
	return slices.Clone(m.snapshot().byRegion[region])
}

// TagInUse reports whether another worker has this tag. A worker asks at its
// first start, once Ready, before it takes a tag with SetTag.
func (m *Members) TagInUse(tag bourse.WorkerTag) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes { // not the snapshot: one that is pending counts
		if n.proven && n.member.ID != m.self.member.ID && n.member.Role == bourse.RoleWorker && n.member.Tag == tag {
			return true
		}
	}
	return false
}

// snapshot returns the present list. Readers do not wait for one another unless
// it has to be built.
func (m *Members) snapshot() *snapshot {
	if !m.stale.Load() {
		return m.current.Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale.Load() {
		m.current.Store(build(m.nodes, m.name))
		m.stale.Store(false)
	}
	return m.current.Load()
}
