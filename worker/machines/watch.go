package machines

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
	"github.com/bourse-dev/bourse/worker/state"
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

// add reports whether id was not in the set.
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
func (o *operations) watch(d driver.Driver, id driver.TaskID, unknown string) {
	if !o.watched.add(id) {
		return
	}
	o.state.Go(func(life context.Context) {
		defer o.watched.remove(id)
		for life.Err() == nil {
			exit, err := d.Wait(life, id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				exit = bourse.Exit{Code: -1, Error: unknown, At: time.Now().UTC()}
				err = nil
			}
			if err == nil {
				err = o.ended(life, d, id, exit)
			}
			if err == nil || life.Err() != nil {
				return
			}
			if kept, ok := o.watched.failures.Due(); ok {
				o.state.Log.Warn("watch of a machine", "machine", id.Machine, "boot", id.Boot, "err", err, "not_logged", kept)
			}
			state.Rest(life, watchPatience)
		}
	})
}

// ended records the end of a task together with what follows it: the delayed
// run of its restart policy, or its destruction. Then the driver may forget.
func (o *operations) ended(ctx context.Context, d driver.Driver, id driver.TaskID, exit bourse.Exit) error {
	for {
		change := o.state.Machines.Next(id.Machine)
		err := o.recordEnd(ctx, id, exit)
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

func (o *operations) recordEnd(ctx context.Context, id driver.TaskID, exit bourse.Exit) error {
	m, err := o.state.Machine(ctx, id.Machine)
	if err != nil {
		return err
	}
	if notStarted(&m, id.Boot) {
		return errNotStarted
	}
	next, _ := afterExit(&m, id.Boot, exit)
	if next == rest && m.State == bourse.StateStopped {
		// Before the end is recorded: it is not started again until then. This
		// watch is the only one that records it, so no later boot is hit.
		if err := o.fittings.Shed(ctx, &m); err != nil {
			return err
		}
	}
	end, err := o.tasks.Ended(ctx, &m, exit)
	if err != nil {
		return err
	}
	write := func(tx *store.Tx) error {
		if err := end(tx); err != nil {
			return err
		}
		return recordExit(tx, id.Machine, id.Boot, exit, next)
	}
	if err := o.follow(ctx, &m, id, next, write); err != nil {
		return err
	}
	if next != nothing {
		o.state.Counts.Exited(&exit, m.Boot.Requested, next == revive)
	}
	return nil
}

// follow begins what follows the end of a boot, in the transaction that records
// the end.
func (o *operations) follow(ctx context.Context, m *bourse.Machine, id driver.TaskID, next aftermath, write func(*store.Tx) error) error {
	req := machineRequest{Machine: id.Machine, Boot: id.Boot}
	switch next {
	case revive:
		_, err := o.defs.revive.Start(ctx, o.state.Engine, state.OfRevival(id.Machine), req, fsm.StartOptions{
			NotBefore: time.Now().Add(bourse.RestartBackoff(len(m.Boot.Restarts))), Queue: true, Write: state.InTx(write),
		})
		o.state.Machines.Changed(id.Machine)
		return err
	case remove:
		_, err := o.begin(ctx, o.defs.destroy, req, state.InTx(write))
		return err
	case nothing, rest:
		return o.state.Commit(ctx, id.Machine, write)
	}
	return nil
}
