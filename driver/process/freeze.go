package process

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// freezeLimit is the time limit for freezing a task's processes. A process that hangs in the
// kernel, for example because of a failed disk, cannot be frozen.
const freezeLimit = 10 * time.Second

// Freeze implements driver.Driver.
func (d *Driver) Freeze(ctx context.Context, id driver.TaskID, frozen bool) error {
	if status, _, ok := d.mirror.get(id); ok && status.Exit != nil {
		return errEnded(id)
	}
	return d.call(ctx, &request{Op: opFreeze, Task: id, Frozen: frozen}, nil)
}

func errFrozen(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d is frozen", id.Machine, id.Boot)
}

// freeze is the supervisor's part of Driver.Freeze. It prevents concurrent forks in the task's
// group, because a child that is frozen before it executes its program would block all other forks
// of this process.
func (s *supervisor) freeze(ctx context.Context, id driver.TaskID, frozen bool) error {
	t, err := s.find(id)
	if err != nil {
		return err
	}
	with := s.join(t)
	if with == nil {
		return errEnded(id)
	}
	defer with.forks.Done()
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	with.freezing.Lock()
	defer with.freezing.Unlock()
	err = errors.ErrUnsupported
	if with.group != nil {
		err = with.group.Freeze(ctx, frozen)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "this host has no cgroups that can freeze processes")
	case err != nil:
		return bourse.Errorf(bourse.CodeUnavailable, "freeze: %w", err)
	}
	with.frozen = frozen
	return nil
}

// kill kills a task's process group. A frozen task dies without being resumed.
func (s *supervisor) kill(t *task) {
	killGroup(t.pid, syscall.SIGKILL)
	s.thaw(t, true)
}

// thaw resumes a frozen task or, if kill is set, kills it. It does nothing if the task is not
// frozen.
func (s *supervisor) thaw(t *task, kill bool) {
	with := s.join(t)
	if with == nil {
		return
	}
	defer with.forks.Done()
	with.freezing.Lock()
	defer with.freezing.Unlock()
	switch {
	case !with.frozen:
		return
	case kill:
		with.group.KillAll(killGrace)
	default:
		if err := with.group.Freeze(context.Background(), false); err != nil {
			s.log.Warn("resume task failed", "machine", t.id.Machine, "err", err)
		}
	}
	with.frozen = false
}
