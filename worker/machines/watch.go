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
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

var (
	errChanged    = errors.New("the machine's state has changed")
	errNotStarted = errors.New("the start is not recorded yet")
)

// watchRetry is the delay between attempts to record an exit that the store does not
// accept, for example because the disk is full. The driver keeps the exit until it is
// recorded.
const watchRetry = time.Second

// watching is the set of watched tasks.
type watching struct {
	mu    sync.Mutex
	tasks map[driver.TaskID]struct{} // guarded by mu

	failures quiet.Line
}

// add adds id to the set. It returns false if the set already contains id.
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

// Error texts for the exits of tasks that the driver does not know.
const (
	errTextLost       = "the driver lost the task"
	errTextNotStarted = "ended before it was started"
)

// watch starts a goroutine that waits for a task's exit and calls ended. It does nothing if the task is already
// watched. If the driver does not know the task, the goroutine records an exit with unknown as the error text.
func (ms *Machines) watch(d driver.Driver, id driver.TaskID, unknown string) {
	if !ms.watched.add(id) {
		return
	}
	ms.state.Go(func(life context.Context) {
		defer ms.watched.remove(id)
		for life.Err() == nil {
			exit, err := d.Wait(life, id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				exit = bourse.Exit{Code: -1, Error: unknown, At: time.Now().UTC()}
				err = nil
			}
			if err == nil {
				err = ms.ended(life, d, id, exit)
			}
			if err == nil || life.Err() != nil {
				return
			}
			if kept, ok := ms.watched.failures.Due(); ok {
				ms.state.Log.Warn("watch machine failed", "machine", id.Machine, "boot", id.Boot, "err", err, "not_logged", kept)
			}
			state.Sleep(life, watchRetry)
		}
	})
}

// ended records a task's exit. If the machine must then be restarted after a delay or destroyed, the same transaction
// begins the run that does so. Afterwards, ended tells the driver to discard the exit.
func (ms *Machines) ended(ctx context.Context, d driver.Driver, id driver.TaskID, exit bourse.Exit) error {
	for {
		change := ms.state.Machines.Next(id.Machine)
		err := ms.recordEnd(ctx, id, exit)
		switch {
		case errors.Is(err, errChanged):
		case errors.Is(err, errNotStarted):
			select {
			case <-change:
			case <-ctx.Done():
				return ctx.Err()
			}
		case bourse.CodeOf(err) == bourse.CodeNotFound:
			return d.Destroy(ctx, id.Machine) // a machine without a record must not leave anything on the host
		case err != nil:
			return err
		default:
			return d.DiscardExit(ctx, id)
		}
	}
}

func (ms *Machines) recordEnd(ctx context.Context, id driver.TaskID, exit bourse.Exit) error {
	m, err := ms.state.Machine(ctx, id.Machine)
	if err != nil {
		return err
	}
	if notStarted(&m, id.Boot) {
		return errNotStarted
	}
	next, _ := decideExit(&m, id.Boot, exit)
	if next == exitStay && m.State == bourse.StateStopped {
		// Tear down before the exit is recorded, because the machine cannot start again until then. Since only this
		// goroutine records the exit, no later boot can be running yet.
		if err := ms.tryTearDown(ctx, &m); err != nil {
			return err
		}
	}
	end, err := ms.tasks.MachineExited(ctx, &m, exit)
	if err != nil {
		return err
	}
	write := func(tx *store.Tx) error {
		if err := end(tx); err != nil {
			return err
		}
		return recordExit(tx, id.Machine, id.Boot, exit, next)
	}
	if err := ms.follow(ctx, &m, id, next, write); err != nil {
		return err
	}
	if next != exitIgnored {
		ms.state.Counts.Exited(&exit, m.Boot.Requested, next == exitRestart)
	}
	return nil
}

// follow records a task's exit by calling write. In the same transaction, it begins the run that must follow the exit,
// if any.
func (ms *Machines) follow(ctx context.Context, m *bourse.Machine, id driver.TaskID, next exitAction, write func(*store.Tx) error) error {
	req := machineRequest{Machine: id.Machine, Boot: id.Boot}
	switch next {
	case exitRestart:
		_, err := ms.defs.delayedRestart.Start(ctx, ms.state.Engine, state.OfRestart(id.Machine), req, fsm.StartOptions{
			NotBefore: time.Now().Add(bourse.RestartBackoff(len(m.Boot.Restarts))), Queue: true, Write: state.InTx(write),
		})
		ms.state.Machines.Applied(id.Machine)
		return err
	case exitDestroy:
		_, err := ms.begin(ctx, ms.defs.destroy, req, state.InTx(write))
		return err
	case exitIgnored, exitStay:
		return ms.state.Commit(ctx, id.Machine, write)
	}
	return nil
}

// exitAction is the action that follows a task's exit.
type exitAction string

const (
	exitIgnored exitAction = "nothing" // the exit is recorded already, or belongs to an earlier boot
	exitStay    exitAction = "rest"    // no new run is needed: the machine stays as it is, or a run in progress takes over
	exitRestart exitAction = "revive"  // the restart policy restarts the machine
	exitDestroy exitAction = "remove"  // the machine is destroyed because its config has auto_destroy
)

// decideExit decides what happens after m's program has exited in the given boot. It changes m's state, resources and
// exit accordingly, and returns the event. The result depends only on the arguments.
func decideExit(m *bourse.Machine, boot int, exit bourse.Exit) (exitAction, bourse.Event) {
	if m.Boot.Number != boot || m.Boot.Exit != nil || m.State == bourse.StateDestroyed {
		return exitIgnored, bourse.Event{}
	}
	event := &bourse.ExitEvent{Exit: exit, RequestedStop: m.Boot.Requested}
	next := exitStay
	switch {
	case m.State == bourse.StateDestroying:
	case m.State == bourse.StateReplacing: // the update's run takes over
	case m.State == bourse.StateRestarting: // a restart was requested, and its run takes over
		event.Restarting = true
	case !m.Boot.Requested && !m.Boot.Frozen && policyRestarts(m, exit): // a program that was lost while suspended is restarted only on request
		next, m.State, event.Restarting = exitRestart, bourse.StateRestarting, true
		m.Boot.Restarts = append(m.Boot.Restarts, exit.At)
	case m.Config.AutoDestroy:
		next, m.State = exitDestroy, bourse.StateStopped
	default:
		m.State = bourse.StateStopped
	}
	event.RestartCount = len(m.Boot.Restarts)
	if m.State == bourse.StateStopped {
		releaseRunning(m)
	}
	m.Boot.Exit, m.Boot.PID, m.Boot.Frozen = &exit, 0, false
	return next, bourse.Event{Type: bourse.EventExit, State: m.State, Source: bourse.SourceWorker, At: exit.At, Exit: event}
}

// releaseRunning releases the resources that m needs only while it runs, except those that are reserved for its next
// version. m keeps its port.
func releaseRunning(m *bourse.Machine) {
	m.Takes, m.Devices = admit.WhileStopped(m.Takes), nil
	if m.Next != nil {
		m.Takes = admit.Max(m.Takes, m.Next.Takes)
	}
}

// policyRestarts reports whether m's restart policy restarts it after an exit. It also removes restarts that are older
// than the policy's window from m's list of restarts.
func policyRestarts(m *bourse.Machine, exit bourse.Exit) (again bool) {
	again, m.Boot.Restarts = m.Config.RestartPolicy().ShouldRestart(exit, m.Boot.Restarts)
	return again
}

// recordExit records a task's exit. prepared is the action that the caller will take. recordExit returns errChanged if
// the exit now requires a different action, and errNotStarted if the task's start is not recorded yet.
func recordExit(tx *store.Tx, id bourse.MachineID, boot int, exit bourse.Exit, prepared exitAction) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if notStarted(m, boot) {
			return false, nil, errNotStarted
		}
		next, event := decideExit(m, boot, exit)
		if next != prepared {
			return false, nil, errChanged
		}
		if next == exitIgnored {
			return false, nil, nil
		}
		events := []bourse.Event{event}
		if next == exitDestroy {
			events = append(events, intendDestroy(m, bourse.SourceWorker))
		}
		return true, events, nil
	})
	return err
}

// notStarted reports whether the start of the given boot is not recorded yet. A task's exit can be recorded only after
// its start.
func notStarted(m *bourse.Machine, boot int) bool {
	return m.Boot.Number == boot && m.State == bourse.StateStarting
}
