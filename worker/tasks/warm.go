package tasks

import (
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// warmMachines are the started machines that tasks have been sent to, with the
// connections to their programs. They are a memory of what the store says,
// thrown away at every change of a machine; only how many places are in use is
// known nowhere else, and needs no disk: a dead daemon's connections are cut,
// and its calls with them.
type warmMachines struct {
	patience time.Duration // how long after its start a program may take to listen

	mu    sync.Mutex
	known map[bourse.MachineID]*warmMachine // guarded by mu, as all that they hold
	over  bool
}

// warmMachine is a machine whose program answers payloads.
type warmMachine struct {
	id       bourse.MachineID
	boot     int
	address  string // of its program: host and port
	port     uint16
	private  bool // in a network of its own
	protocol bourse.TaskProtocol
	places   int           // payloads at once; 0: it does not serve
	limit    time.Duration // of a call; 0: none of its own
	since    time.Time     // it was started, or changed, last
	busy     int           // places in use
	changes  int           // of its record, as far as notified; begins with 1
	read     int           // the last of them that the fields above know
	link     link
}

// Connections of calls.
const (
	// warmIdle is how long a connection that no call uses is kept. Servers close
	// theirs after two seconds and more: who closes first must be us, for a
	// payload that meets the closing is lost.
	warmIdle = time.Second
	// warmUp is the patience of all but tests.
	warmUp = 10 * time.Second
	// maxReplyHeader bounds the header of a program's reply, in bytes.
	maxReplyHeader = 64 << 10
)

// changed forgets what is known of a machine.
func (s *warmMachines) changed(id bourse.MachineID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.known[id]; m != nil {
		m.changes++
		s.drop(m)
	}
}

// drop forgets a machine that has changed or does not serve, unless calls use
// it. s.mu is held.
func (s *warmMachines) drop(m *warmMachine) {
	if (m.read != m.changes || m.places == 0 || s.over) && m.busy == 0 {
		if s.known[m.id] == m {
			delete(s.known, m.id)
		}
		if m.link != nil {
			m.link.leave()
		}
	}
}

// close closes the connections that no call uses, and those of calls as they
// end.
func (s *warmMachines) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, m := range s.known {
		s.drop(m)
	}
}

// looking returns what is known of a machine, and of which change. The caller of
// what is not fresh reads the store after this, and calls learn.
func (s *warmMachines) looking(id bourse.MachineID) (m *warmMachine, change int, fresh bool) {
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

// learn takes what the store said of a machine at least since a change.
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
			m.link.leave()
		}
		m.boot, m.address, m.port, m.private = rec.Boot.Number, address, port, rec.PrivateIP.IsValid()
		m.protocol = task.Protocol
		m.link = link(m)
	}
	m.places, m.limit, m.since = task.Places(), time.Duration(task.Timeout), rec.UpdatedAt
}

// count counts the places of machines and how many of them are in use.
func (s *warmMachines) count(list []*warmMachine) (places, busy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		places += m.places
		busy += min(m.busy, m.places)
	}
	return places, busy
}

// take takes a place on the machine with the most free ones, nil when none is
// free. release returns it. moved says that something was forgotten since
// list was made: look again.
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

// warmAddress returns where m's program listens.
func warmAddress(m *bourse.Machine) (string, uint16) {
	host := "127.0.0.1"
	if m.PrivateIP.IsValid() {
		host = m.PrivateIP.String()
	}
	port := m.TaskPort()
	return net.JoinHostPort(host, strconv.Itoa(port)), uint16(port)
}

// warmFor returns machines with what the store has of them now. One whose start
// is only on its way there is seen after store.Sync.
func (t *Tasks) warmFor(ids []bourse.MachineID) ([]*warmMachine, error) {
	var out []*warmMachine
	for _, id := range ids {
		m, change, fresh := t.warm.looking(id)
		if !fresh {
			var rec bourse.Machine
			err := t.state.Store.View(func(tx *store.Tx) (err error) { rec, err = tx.Machine(id); return err })
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				err = nil // gone, and so is the zero record
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
