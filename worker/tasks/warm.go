package tasks

import (
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// warmMachines caches started machines to which tasks have been sent, together with the connections to their programs.
// When a machine's record changes, its entry is discarded. The number of calls in progress on each machine is kept only
// here; everything else can be read from the store. That number need not be stored: when the daemon dies, its
// connections are closed, which ends all calls.
type warmMachines struct {
	timeout time.Duration // how long a program may take to listen after its machine has started

	mu    sync.Mutex
	known map[bourse.MachineID]*warmMachine // guarded by mu, including the entries
	over  bool
}

// warmMachine is a machine whose program accepts tasks.
type warmMachine struct {
	id       bourse.MachineID
	boot     int
	address  string // host and port of the machine's program
	port     uint16
	private  bool // whether the machine has a private network
	protocol bourse.TaskProtocol
	places   int           // maximum number of concurrent payloads; 0 if the machine accepts none
	limit    time.Duration // time limit of each call; 0 if the machine sets none
	since    time.Time     // time of the machine's last start or change
	busy     int           // number of places in use
	changes  int           // number of reported changes to the machine's record, plus 1
	read     int           // value of changes when the fields above were read
	link     link
}

// Settings for connections to programs.
const (
	// idleTimeout is the time after which an idle connection is closed. Servers close idle connections after two
	// seconds or more. The worker must close a connection before the server does, because a payload that it sends while
	// the server closes the connection is lost.
	idleTimeout = time.Second
	// warmUpTimeout is how long a program may take to listen after its machine has started.
	warmUpTimeout = 10 * time.Second
	// maxReplyHeader is the maximum size of a reply's header, in bytes.
	maxReplyHeader = 64 << 10
)

// changed discards a machine's entry, unless calls are using it. It is called after the machine's record has changed.
func (s *warmMachines) changed(id bourse.MachineID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.known[id]; m != nil {
		m.changes++
		s.drop(m)
	}
}

// drop removes a machine if its record has changed, if it no longer accepts tasks or if close was called, unless calls
// are using the machine. The caller must hold s.mu.
func (s *warmMachines) drop(m *warmMachine) {
	if (m.read != m.changes || m.places == 0 || s.over) && m.busy == 0 {
		if s.known[m.id] == m {
			delete(s.known, m.id)
		}
		if m.link != nil {
			m.link.drain()
		}
	}
}

// close closes idle connections immediately, and other connections when their calls end.
func (s *warmMachines) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, m := range s.known {
		s.drop(m)
	}
}

// entry returns a machine's entry, creating it if necessary. change is the number of the latest change to the machine's
// record. If fresh is false, the caller must read the record from the store and pass it to learn, together with change.
func (s *warmMachines) entry(id bourse.MachineID) (m *warmMachine, change int, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m = s.known[id]
	if m == nil {
		m = &warmMachine{id: id, changes: 1}
		if s.known == nil {
			s.known = map[bourse.MachineID]*warmMachine{}
		}
		s.known[id] = m
	}
	return m, m.changes, m.read == m.changes
}

// learn updates a machine's entry from the machine's record. The record must have been read from the store after entry
// returned change.
func (s *warmMachines) learn(m *warmMachine, change int, rec *bourse.Machine, link func(*warmMachine) link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change < m.read {
		return
	}
	m.read = change
	task := rec.Config.Task
	if rec.State != bourse.StateStarted || task == nil {
		m.places = 0
		s.drop(m)
		return
	}
	address, port := warmAddress(rec)
	if m.link == nil || m.boot != rec.Boot.Number || m.address != address || m.protocol != task.Protocol {
		if m.link != nil {
			m.link.drain()
		}
		m.boot, m.address, m.port, m.private = rec.Boot.Number, address, port, rec.PrivateIP.IsValid()
		m.protocol = task.Protocol
		m.link = link(m)
	}
	m.places, m.limit, m.since = task.Places(), time.Duration(task.Timeout), rec.UpdatedAt
}

// count returns the total number of places on the machines in list, and the number of
// places in use.
func (s *warmMachines) count(list []*warmMachine) (places, busy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		places += m.places
		busy += min(m.busy, m.places)
	}
	return places, busy
}

// take takes a place on the machine in list that has the most free places. It returns nil if no place is free. The
// caller must call release later. moved reports whether an entry was removed since list was read; if so, the caller
// should try again.
func (s *warmMachines) take(list []*warmMachine) (best *warmMachine, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if s.known[m.id] != m {
			moved = true
		} else if m.places > m.busy && (best == nil || m.places-m.busy > best.places-best.busy) {
			best = m
		}
	}
	if best != nil {
		best.busy++
	}
	return best, moved
}

func (s *warmMachines) release(m *warmMachine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.busy--
	s.drop(m)
}

// warmAddress returns the address (host:port) and the port on which m's program listens.
func warmAddress(m *bourse.Machine) (string, uint16) {
	host := "127.0.0.1"
	if m.PrivateIP.IsValid() {
		host = m.PrivateIP.String()
	}
	port := m.TaskPort()
	return net.JoinHostPort(host, strconv.Itoa(port)), uint16(port)
}

// warmFor returns the entries of the machines in ids, updated from the store. To include a start that is not durable
// yet, call store.Sync first.
func (t *Tasks) warmFor(ids []bourse.MachineID) ([]*warmMachine, error) {
	var out []*warmMachine
	for _, id := range ids {
		m, change, fresh := t.warm.entry(id)
		if !fresh {
			var rec bourse.Machine
			err := t.state.Store.View(func(tx *store.Tx) (err error) { rec, err = tx.Machine(id); return err })
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				err = nil // the zero record means that the machine accepts no tasks
			}
			t.warm.learn(m, change, &rec, t.linkTo)
			if err != nil {
				return nil, err
			}
		}
		out = append(out, m)
	}
	return out, nil
}
