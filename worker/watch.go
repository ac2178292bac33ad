package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
)

var (
	errMoved      = errors.New("the machine has moved on")
	errNotStarted = errors.New("the start is not recorded yet")
)

// patience between attempts to record an exit that the store refuses, on a
// full disk say: the driver keeps the exit until it is recorded.
const watchPatience = time.Second

// watching is the set of tasks that have a watch.
type watching struct {
	mu    sync.Mutex
	tasks map[driver.TaskID]struct{} // guarded by mu

	failures quiet.Line
}

// add tells whether id was not in the set.
func (s *watching) add(id driver.TaskID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tasks[id]; ok {
		return false
	}
	if s.tasks == nil {
		s.tasks = map[driver.TaskID]struct{}{}
	}
	s.tasks[id] = struct{}{}
	return true
}

func (s *watching) remove(id driver.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, id)
}

// What is recorded of a task that its driver does not know.
const (
	lost      = "the driver lost it"
	unstarted = "ended before it was started"
)

// watch waits for a task's end in a goroutine of its own, and sees to what
// follows. A task has one watch at a time; asking again is free. unknown is
// how it has ended if the driver does not know it.
func (w *Worker) watch(d driver.Driver, id driver.TaskID, unknown string) {
	if !w.watched.add(id) {
		return
	}
	w.watches.Go(func() {
		defer w.watched.remove(id)
		for w.life.Err() == nil {
			exit, err := d.Wait(w.life, id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				exit = bourse.Exit{Code: -1, Error: unknown, At: time.Now().UTC()}
				err = nil
			}
			if err == nil {
				err = w.ended(w.life, d, id, exit)
			}
			if err == nil || w.life.Err() != nil {
				return
			}
			if kept, ok := w.watched.failures.Due(); ok {
				w.log.Warn("watch of a machine", "machine", id.Machine, "boot", id.Boot, "err", err, "not_logged", kept)
			}
			w.rest(w.life, watchPatience)
		}
	})
}

func (w *Worker) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ended records the end of a task together with what follows it: the delayed
// run of its restart policy, or its destruction. Then the driver may forget.
func (w *Worker) ended(ctx context.Context, d driver.Driver, id driver.TaskID, exit bourse.Exit) error {
	for {
		change := w.news.of(id.Machine)
		err := w.recordEnd(ctx, id, exit)
		switch {
		case errors.Is(err, errMoved):
		case errors.Is(err, errNotStarted):
			select {
			case <-change:
			case <-ctx.Done():
				return ctx.Err()
			}
		case bourse.CodeOf(err) == bourse.CodeNotFound:
			return d.Destroy(ctx, id.Machine) // no record: nothing may be left of it
		case err != nil:
			return err
		default:
			return d.Forget(ctx, id)
		}
	}
}

func (w *Worker) recordEnd(ctx context.Context, id driver.TaskID, exit bourse.Exit) error {
	m, err := w.machine(ctx, id.Machine)
	if err != nil {
		return err
	}
	if notStarted(&m, id.Boot) {
		return errNotStarted
	}
	next, _ := afterExit(&m, id.Boot, exit)
	if next == rest && m.State == bourse.StateStopped {
		// Before the end is recorded: nobody starts it again until then. This
		// watch is the only one that records it, so no later boot is hit.
		if err := w.shed(ctx, &m); err != nil {
			return err
		}
	}
	end, err := w.coldEnd(ctx, &m, exit)
	if err != nil {
		return err
	}
	write := func(tx *store.Tx) error {
		if err := end(tx); err != nil {
			return err
		}
		return recordExit(tx, id.Machine, id.Boot, exit, next)
	}
	req := machineRequest{Machine: id.Machine, Boot: id.Boot}
	switch next {
	case revive:
		_, err = w.defs.revive.Start(ctx, w.engine, revivePrefix+string(id.Machine), req, fsm.StartOptions{
			NotBefore: time.Now().Add(bourse.RestartBackoff(len(m.Boot.Restarts))), Queue: true, Write: inTx(write),
		})
		w.machineChanged(id.Machine)
		return err
	case remove:
		_, err := w.begin(ctx, w.defs.destroy, req, inTx(write))
		return err
	case nothing, rest:
		return w.commit(ctx, id.Machine, write)
	}
	return nil
}
