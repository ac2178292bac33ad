package gossip

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Members is this server's list of the members of its cluster, including the server itself. All methods are safe for
// concurrent use. The list is as current as the last gossip that this server has received.
type Members struct {
	config Config
	name   string // this member's name in the group
	list   *memberlist.Memberlist
	gossip string // this member's address in the group
	quiet  *quiet.Lines

	keyring *Keys

	ready        chan struct{}   // closed by Run, see Ready
	watchWork    chan struct{}   // holds one value if watch has work to do
	changes      chan struct{}   // holds one value if this member's metadata has to be published
	fetchKeys    chan struct{}   // holds one value if there is a key to fetch
	work         sync.WaitGroup  // goroutines that fetch keys
	unresponsive map[string]bool // configured addresses whose failure to answer has been logged; used only by join's goroutine

	memberList
}

// memberList contains the data that is shared between memberlist's callbacks and the other methods
// of Members.
type memberList struct {
	stale   atomic.Bool // whether the cached snapshot is outdated
	current atomic.Pointer[snapshot]

	mu      sync.Mutex // taken while memberlist's own lock is held
	self    node       // this member's own data
	latest  []byte     // this member's metadata as last passed to memberlist
	nodes   map[string]node
	former  map[string]time.Time     // time when each former member left, by gossip address
	ignored map[string]error         // reason why each ignored server was not accepted, by gossip address
	lost    []loss                   // losses not yet reported to OnLost
	stopped map[bourse.WorkerID]bool // workers that were leaving when they were removed from nodes
	changed chan struct{}            // closed and replaced at each change
	keyring
}

type loss struct {
	member bourse.Member
	at     time.Time
}

// Open binds the member's gossip address, so that others can call it. The member itself calls others only in Run.
// Either Run or Close releases the resources. Errors: CodeInvalid if the config is invalid, CodeAlreadyExists if
// another process uses the address.
func Open(c Config) (*Members, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	boot := string(bourse.NewInstanceID()) // a ULID, which is greater than those of earlier boots
	m := &Members{
		config:       c,
		name:         nodeName(c.Self.ID, boot),
		quiet:        &quiet.Lines{},
		ready:        make(chan struct{}),
		watchWork:    make(chan struct{}, 1),
		changes:      make(chan struct{}, 1),
		fetchKeys:    make(chan struct{}, 1),
		unresponsive: map[string]bool{},
	}
	m.keys, m.unverified = map[identity]Key{}, map[string]*unverified{}
	m.nodes, m.former, m.changed = map[string]node{}, map[string]time.Time{}, make(chan struct{})
	m.stopped = map[bourse.WorkerID]bool{}
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
		err = list.UpdateNode(publishTimeout) // sign the metadata again, because the signature must cover the address, which was unknown before
	}
	if err != nil {
		return nil, errors.Join(err, list.Shutdown())
	}
	return m, nil
}

// Close closes a member that was opened but not run.
func (m *Members) Close() error { return m.list.Shutdown() }

// Addr returns the gossip address of this member.
func (m *Members) Addr() string { return m.gossip }

// Ready returns a channel that is closed once Run has called the configured members, whether or not
// they answered, and has found that no other server uses this member's id. Until then, other
// members do not list this member.
func (m *Members) Ready() <-chan struct{} { return m.ready }

// Changed returns a channel that is closed at the next change to the list. Call it before you read the list; otherwise,
// you may miss a change.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Members returns every member, sorted by id. The caller owns the slice.
func (m *Members) Members() []bourse.Member { return slices.Clone(m.snapshot().members) }

// Workers returns every worker, sorted by id, including those that do not accept orders. The caller owns the slice.
func (m *Members) Workers() []bourse.Member {
	return slices.DeleteFunc(m.Members(), func(x bourse.Member) bool { return x.Role != bourse.RoleWorker })
}

// Worker returns the worker with this id, and whether it is a member.
func (m *Members) Worker(id bourse.WorkerID) (bourse.Member, bool) {
	s := m.snapshot()
	i, ok := s.byID[id]
	if !ok || s.members[i].Role != bourse.RoleWorker {
		return bourse.Member{}, false
	}
	return s.members[i], true
}

// ByTag returns the worker with this tag, and whether such a worker is a member. The ids of a
// worker's machines begin with its tag.
func (m *Members) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	s := m.snapshot()
	i, ok := s.byTag[tag]
	if !ok {
		return bourse.Member{}, false
	}
	return s.members[i], true
}

// Regions returns every region that has a worker, sorted. The caller owns the slice.
func (m *Members) Regions() []bourse.Region { return slices.Clone(m.snapshot().regions) }

// Candidates returns a region's workers that accept orders. The caller owns the slice.
func (m *Members) Candidates(region bourse.Region) []bourse.Member {
	return slices.Clone(m.snapshot().byRegion[region])
}

// TagInUse reports whether another worker has this tag. A worker that starts for the first time
// calls TagInUse once the member is Ready, before it calls SetTag.
func (m *Members) TagInUse(tag bourse.WorkerTag) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes { // not from the snapshot, because pending members also count
		if n.proven && n.member.ID != m.self.member.ID && n.member.Role == bourse.RoleWorker && n.member.Tag == tag {
			return true
		}
	}
	return false
}

// snapshot returns the current list. Callers do not block each other, unless the snapshot has to be
// rebuilt.
func (m *Members) snapshot() *snapshot {
	if !m.stale.Load() {
		return m.current.Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale.Load() {
		s := build(m.nodes, m.name)
		s.stopped = maps.Clone(m.stopped)
		m.current.Store(s)
		m.stale.Store(false)
	}
	return m.current.Load()
}
