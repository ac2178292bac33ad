package process

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// destroy implements driver.Driver's Destroy.
func (s *supervisor) destroy(ctx context.Context, id bourse.MachineID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	m := s.machineLocked(id)
	m.destroying++
	var tasks []*task
	for _, t := range m.tasks {
		tasks = append(tasks, t)
	}
	s.mu.Unlock()
	err := s.killTasks(ctx, tasks)
	if err == nil {
		err = errors.Join(m.log.Destroy(), os.RemoveAll(s.layout.home(id)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.destroying--
	if err == nil && s.machines[id] == m && m.destroying == 0 {
		delete(s.machines, id)
		s.wakeUp()
	}
	return err
}

func (s *supervisor) killTasks(ctx context.Context, tasks []*task) error {
	var all error
	for _, t := range tasks {
		<-t.started
		if t.err == nil && !t.ended() {
			s.kill(t)
		}
	}
	for _, t := range tasks {
		if t.err != nil {
			continue
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			all = errors.Join(all, ctx.Err())
		}
	}
	return all
}

// shutdown stops all tasks and removes all data about the directory's machines. The supervisor must
// already be stopping, so that no new tasks are started.
func (s *supervisor) shutdown(ctx context.Context) error {
	tasks := s.tasks()
	for _, t := range tasks {
		<-t.started
		if t.err == nil && !t.ended() {
			killGroup(t.pid, syscall.SIGTERM)
			killGroup(t.pid, syscall.SIGCONT)
			s.thaw(t, false)
		}
	}
	grace, cancel := context.WithTimeout(ctx, shutdownTerm)
	defer cancel()
	for _, t := range tasks {
		select {
		case <-t.done:
		case <-grace.Done():
		}
	}
	var all error
	for _, id := range s.known() {
		all = errors.Join(all, s.destroy(ctx, id))
	}
	return all
}

// known returns the ids of all machines that have an entry in the table, a directory or a log.
func (s *supervisor) known() []bourse.MachineID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[bourse.MachineID]bool{}
	for id := range s.machines {
		ids[id] = true
	}
	logged, _ := s.layout.logs().Machines() // the supervisor owns these directories, so reading them does not fail
	homes, _ := os.ReadDir(s.layout.home(""))
	for _, id := range logged {
		ids[id] = true
	}
	for _, e := range homes {
		if id := bourse.MachineID(e.Name()); id.Validate() == nil {
			ids[id] = true
		}
	}
	out := make([]bourse.MachineID, 0, len(ids))
	for id := range ids {
		out = append(out, id)
	}
	return out
}
