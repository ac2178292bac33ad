package process

import (
	"cmp"
	"os"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/logs"
)

// machine is the table's entry for a machine that has not been destroyed.
type machine struct {
	tasks      map[int]*task // by boot; discarded tasks are removed
	newest     int           // the highest boot that was ever started
	destroying int           // number of calls to destroy in progress
	watchers   int
	log        *logs.Log
}

// machineLocked returns a machine's entry, creating it if necessary.
func (s *supervisor) machineLocked(id bourse.MachineID) *machine {
	m := s.machines[id]
	if m == nil {
		m = &machine{tasks: map[int]*task{}, log: s.layout.logs().Log(id)}
		s.machines[id] = m
	}
	return m
}

// dropLocked removes a machine's entry if the entry is no longer needed.
func (s *supervisor) dropLocked(id bourse.MachineID) {
	if m := s.machines[id]; m != nil && len(m.tasks) == 0 && m.newest == 0 && m.watchers == 0 && m.destroying == 0 {
		delete(s.machines, id)
	}
}

// start implements driver.Driver's Start.
func (s *supervisor) start(sp *spec) (driver.Status, error) {
	t, mine, err := s.reserve(sp.ID)
	if err != nil {
		return driver.Status{}, err
	}
	if mine {
		t.err = s.launch(t, sp)
		s.settle(t)
	}
	<-t.started
	if t.err != nil {
		return driver.Status{}, t.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.status, nil
}

// reserve adds a new task to the table and returns it, with mine set to true. The caller must then
// launch and settle the task. If the table already contains a task with that id, reserve returns
// that task and sets mine to false.
func (s *supervisor) reserve(id driver.TaskID) (t *task, mine bool, err error) {
	if err := id.Machine.Validate(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineLocked(id.Machine)
	defer s.dropLocked(id.Machine)
	if t := m.tasks[id.Boot]; t != nil {
		return t, false, nil
	}
	if t, err = s.newTaskLocked(m, id); err != nil {
		return nil, false, err
	}
	m.tasks[id.Boot] = t
	return t, true, nil
}

// newTaskLocked creates a task. It returns an error if the machine cannot start this boot, for
// example because an earlier boot is still running.
func (s *supervisor) newTaskLocked(m *machine, id driver.TaskID) (*task, error) {
	switch {
	case s.stopping:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the supervisor is shutting down")
	case m.destroying > 0:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "machine %s is being destroyed", id.Machine)
	case id.Boot <= m.newest:
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is not newer than %d", id.Machine, id.Boot, m.newest)
	}
	for boot, t := range m.tasks {
		if t.status.Exit == nil {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is still running", id.Machine, boot)
		}
	}
	m.log.Configure(s.settings.LogBytes, s.settings.LogFiles)
	return &task{id: id, started: make(chan struct{}), done: make(chan struct{}), log: m.log}, nil
}

// settle records the result of a launch. If the launch failed, settle removes the task and, if the
// machine has never run, the machine's empty directory.
func (s *supervisor) settle(t *task) {
	defer close(t.started)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[t.id.Machine]
	if t.err == nil {
		m.newest = max(m.newest, t.id.Boot)
		if t.status.Exit == nil { // the program may have ended already
			t.status = driver.Status{ID: t.id, PID: t.pid, StartedAt: t.at}
		}
		return
	}
	delete(m.tasks, t.id.Boot)
	if m.newest == 0 {
		_ = os.Remove(s.layout.home(t.id.Machine)) // fails if the directory is in use and therefore not empty
	}
	s.dropLocked(t.id.Machine)
}

// end records a task's exit and notifies the daemon. It sends the event before it closes done. The
// event therefore arrives before the answers to requests that wait for done.
func (s *supervisor) end(t *task, exit bourse.Exit) {
	s.mu.Lock()
	t.status = driver.Status{ID: t.id, StartedAt: t.at, Exit: &exit}
	t.output = nil
	status, session := t.status, s.session
	s.mu.Unlock()
	t.log.Close()
	if session != nil {
		session.send(&reply{Status: &status})
	}
	close(t.done)
}

// find returns a task. If the task is still starting, find waits for the start. It returns
// CodeNotFound if there is no such task or the start fails.
func (s *supervisor) find(id driver.TaskID) (*task, error) {
	s.mu.Lock()
	var t *task
	if m := s.machines[id.Machine]; m != nil {
		t = m.tasks[id.Boot]
	}
	s.mu.Unlock()
	if t != nil {
		<-t.started // soon closed, because a launch does not wait for other launches
	}
	if t == nil || t.err != nil {
		return nil, errNoTask(id)
	}
	return t, nil
}

func errNoTask(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeNotFound, "no task %s/%d", id.Machine, id.Boot)
}

func errEnded(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d has ended", id.Machine, id.Boot)
}

// signal implements driver.Driver's Signal.
func (s *supervisor) signal(id driver.TaskID, signal syscall.Signal) error {
	t, err := s.find(id)
	if err != nil {
		return err
	}
	if t.ended() || syscall.Kill(t.pid, signal) != nil {
		return errEnded(id)
	}
	return nil
}

// forget implements driver.Driver's DiscardExit.
func (s *supervisor) forget(id driver.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id.Machine]; m != nil {
		if t := m.tasks[id.Boot]; t != nil && t.status.Exit != nil {
			delete(m.tasks, id.Boot)
			s.wakeUp()
		}
	}
}

// storeExits adds ended tasks of an earlier supervisor to the table, together with their exits.
func (s *supervisor) storeExits(list []driver.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range list {
		if status.ID.Machine.Validate() != nil || status.Exit == nil {
			continue
		}
		m := s.machineLocked(status.ID.Machine)
		if m.tasks[status.ID.Boot] != nil {
			continue
		}
		t := &task{id: status.ID, status: status, started: make(chan struct{}), done: make(chan struct{}), log: m.log, at: status.StartedAt}
		close(t.started)
		close(t.done)
		m.tasks[status.ID.Boot] = t
		m.newest = max(m.newest, status.ID.Boot)
	}
}

// list returns the status of every task in the table, sorted by id.
func (s *supervisor) list() []driver.Status {
	var out []driver.Status
	for _, t := range s.tasks() {
		<-t.started
		if t.err == nil {
			s.mu.Lock()
			out = append(out, t.status)
			s.mu.Unlock()
		}
	}
	slices.SortFunc(out, func(a, b driver.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Machine, b.ID.Machine), cmp.Compare(a.ID.Boot, b.ID.Boot))
	})
	return out
}

// tasks returns all tasks, including those that are still starting, in no particular order.
func (s *supervisor) tasks() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*task
	for _, m := range s.machines {
		for _, t := range m.tasks {
			out = append(out, t)
		}
	}
	return out
}

// idle reports whether no daemon is connected and there are no tasks.
func (s *supervisor) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleLocked()
}

func (s *supervisor) idleLocked() bool {
	if s.session != nil {
		return false
	}
	for _, m := range s.machines {
		if len(m.tasks) > 0 || m.destroying > 0 {
			return false
		}
	}
	return true
}

// retire marks an idle supervisor as stopping, so that daemons can no longer connect. It returns
// false if the supervisor is not idle or is already stopping.
func (s *supervisor) retire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || !s.idleLocked() { // a shutdown in progress terminates the supervisor anyway
		return false
	}
	s.stopping = true
	return true
}
