package process

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/companion"
)

// loaded is a task whose program has been executed and halted before its first
// instruction, until the daemon says go or drops it. No other request sees it,
// and it ends with its session. The thread that has forked it is kept for it.
type loaded struct {
	t       *task
	with    *surroundings // set before lives is closed
	lives   chan struct{} // closed when with is set, or it could not be loaded
	decided chan struct{} // closed when it is let go or dropped
	gone    chan struct{} // closed when it was dropped and nothing of it is left

	// Under the table's mutex.
	ready bool // it was loaded, and may be let go
	over  bool // decided
	let   bool // it was let go
}

// maxLoaded is how many tasks a session may have loaded at a time: each one
// keeps a thread.
const maxLoaded = 2

// prepareSoon enters a task that is to be loaded, so that whatever is asked
// about it next finds it, and has it loaded by work on a thread of its own. It
// does not wait for work; false: it cannot be loaded now.
func (s *supervisor) prepareSoon(me *session, sp *spec, work func(l *loaded, here group)) bool {
	if !canLoad || sp == nil || sp.apart() || s.children.untraceable.Load() {
		return false
	}
	select {
	case me.loads <- struct{}{}:
	default:
		return false
	}
	l, err := s.reserveLoaded(sp.ID)
	if err != nil {
		<-me.loads
		return false
	}
	if !s.lendLoader(func(here group) {
		defer func() { <-me.loads }()
		work(l, here)
	}) {
		s.discard(l)
		<-me.loads
		return false
	}
	return true
}

// lendLoader has work done on a thread that is kept for it: one that stands
// ready, where there are such. It tells whether there was a thread.
func (s *supervisor) lendLoader(work func(here group)) bool {
	groups := s.grouping()
	switch {
	case groups.lend(work):
		return true
	case groups.stands():
		return false
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		work(nil)
	}()
	return true
}

// prepare loads a task that was entered and answers as soon as it is executed,
// or with why it is not loaded: then nothing is left of it. It returns when the
// task is let go or dropped. The calling thread is locked and does nothing else
// meanwhile; here is the group that it stands in.
func (s *supervisor) prepare(ctx context.Context, me *session, req *request, l *loaded, here group) {
	err := s.load(l, req.Start, here, func(pid int) {
		me.send(&reply{ID: req.ID, Status: &driver.Status{ID: req.Start.ID, PID: pid}})
	})
	if err != nil {
		me.send(&reply{ID: req.ID, Error: companion.ErrorOf(err)})
		return
	}
	select {
	case <-l.decided:
	case <-ctx.Done():
	}
	if s.drop(l) {
		s.unload(me, l)
		return
	}
	setGoing(l.t.pid)
	s.limitSoon(l.t, l.with, req.Start.Limits)
}

// load executes a task's program without running it. executed is called at once
// when that is sure: the program halts while the answer is on its way.
func (s *supervisor) load(l *loaded, sp *spec, here group, executed func(pid int)) (err error) {
	defer close(l.lives)
	select {
	case <-l.decided: // dropped before a thread came to it
		s.discard(l)
		return errNoTask(sp.ID)
	default:
	}
	l.with, err = s.fork(l.t, sp, here, func(pid int) {
		executed(pid)
		if awaitHalt(pid) != nil {
			killHalted(pid) // to be sure: it has ended, which is told when it is let go
		}
	})
	if err != nil {
		s.children.refuse(err)
		s.discard(l)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.ready = true
	return nil
}

// reserveLoaded enters a task that is to be loaded.
func (s *supervisor) reserveLoaded(id driver.TaskID) (*loaded, error) {
	if err := id.Machine.Validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineLocked(id.Machine)
	defer s.dropLocked(id.Machine)
	if m.loaded != nil || m.tasks[id.Boot] != nil {
		return nil, bourse.Errorf(bourse.CodeAlreadyExists, "task %s/%d is there", id.Machine, id.Boot)
	}
	t, err := s.newTaskLocked(m, id)
	if err != nil {
		return nil, err
	}
	m.loaded = &loaded{t: t, lives: make(chan struct{}), decided: make(chan struct{}), gone: make(chan struct{})}
	return m.loaded, nil
}

// letGo has a loaded task run: from here on it is a task as any other. The
// daemon has told others already that it runs, so if it does not, that is told
// as its end.
func (s *supervisor) letGo(me *session, id driver.TaskID, at time.Time) {
	if l := s.loadedAs(id); l != nil {
		<-l.lives // soon: it was executed
	}
	s.mu.Lock()
	m := s.machines[id.Machine]
	if m == nil || m.loaded == nil || m.loaded.t.id != id || !m.loaded.ready || m.loaded.over {
		s.mu.Unlock()
		lost := bourse.Exit{Code: -1, Error: "it was killed before it ran", At: time.Now().UTC()}
		me.send(&reply{Status: &driver.Status{ID: id, StartedAt: at, Exit: &lost}})
		return
	}
	defer s.mu.Unlock()
	l := m.loaded
	t := l.t
	t.at, t.status = at, driver.Status{ID: id, PID: t.pid, StartedAt: at}
	m.loaded, m.tasks[id.Boot], m.newest = nil, t, max(m.newest, id.Boot)
	l.over, l.let = true, true
	close(t.started)
	close(l.decided)
}

// drop decides that a loaded task will not run; false when it does already.
// Whoever keeps its thread kills it.
func (s *supervisor) drop(l *loaded) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abandonLocked(l)
}

func (s *supervisor) abandonLocked(l *loaded) bool {
	if !l.over {
		l.over = true
		close(l.decided)
	}
	return !l.let
}

// loadedAs gives the loaded task with an id, nil when there is none.
func (s *supervisor) loadedAs(id driver.TaskID) *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id.Machine]; m != nil && m.loaded != nil && m.loaded.t.id == id {
		return m.loaded
	}
	return nil
}

// makeWayLocked drops what is loaded of a machine and gives its entry once
// nothing of that is left. It lets go of the mutex meanwhile.
func (s *supervisor) makeWayLocked(id bourse.MachineID) *machine {
	for {
		m := s.machineLocked(id)
		l := m.loaded
		if l == nil {
			return m
		}
		s.abandonLocked(l)
		s.mu.Unlock()
		<-l.gone // soon: it is being killed
		s.mu.Lock()
	}
}

// unload kills a dropped task. Its session does not end before nothing of it is
// left, but the calling thread has to leave its group for that.
func (s *supervisor) unload(me *session, l *loaded) {
	l.t.dropped = l
	killHalted(l.t.pid)
	l.with.forks.Done()
	me.work.Go(func() { <-l.gone })
}

// discard removes the entry of a dropped task of which nothing is left.
func (s *supervisor) discard(l *loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[l.t.id.Machine]
	m.loaded = nil
	s.abandonLocked(l)
	if m.newest == 0 {
		_ = os.Remove(s.layout.home(l.t.id.Machine)) // fails when it was there and something is in it
	}
	s.dropLocked(l.t.id.Machine)
	close(l.gone)
}

// findSoon is find for who asks on another connection than the one on which
// the task is let go, which may be a moment behind.
func (s *supervisor) findSoon(ctx context.Context, id driver.TaskID) (*task, error) {
	if l := s.loadedAs(id); l != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		select {
		case <-l.decided:
		case <-ctx.Done():
		}
	}
	return s.find(id)
}
