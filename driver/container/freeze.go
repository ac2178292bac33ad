package container

import (
	"context"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// Freeze implements driver.Driver.
func (d *Driver) Freeze(ctx context.Context, id driver.TaskID, frozen bool) error {
	t, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if d.tasks.status(t).Exit != nil {
		return errEnded(id)
	}
	if d.groups.Labels()[cgroup.LabelSuspend] == "" {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "this host has no cgroups that can freeze processes")
	}
	ctx, c, release, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	awaitProgram(ctx, d.tasks.status(t).PID)
	if t.vm {
		err = d.freezeMachine(ctx, c, t, frozen)
	} else {
		err = freeze(ctx, c, t.container, frozen)
	}
	if isEnded(err) {
		return errEnded(id)
	}
	return withCode(ctx, err)
}

// thaw resumes a task if it is frozen.
func (d *Driver) thaw(ctx context.Context, c *containerd.Client, t *task) error {
	if frozen, err := isFrozen(ctx, c, t.container); err != nil || !frozen && !t.suspending.Load() {
		return err
	}
	if t.vm {
		return d.freezeMachine(ctx, c, t, false)
	}
	return freeze(ctx, c, t.container, false)
}

// freeze pauses a container or, if frozen is false, resumes it. It does nothing if the container is
// already in the requested state.
func freeze(ctx context.Context, c *containerd.Client, container string, frozen bool) error {
	is, err := isFrozen(ctx, c, container)
	switch {
	case err != nil || is == frozen:
	case frozen:
		_, err = c.TaskService().Pause(ctx, &tasks.PauseTaskRequest{ContainerID: container})
	default:
		_, err = c.TaskService().Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: container})
	}
	return toErrdefs(err)
}

func isFrozen(ctx context.Context, c *containerd.Client, container string) (bool, error) {
	r, err := c.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: container})
	if err != nil {
		return false, toErrdefs(err)
	}
	return r.Process.Status == tasktypes.Status_PAUSED || r.Process.Status == tasktypes.Status_PAUSING, nil
}

// errFrozen returns the error for an Exec in a frozen task.
func errFrozen(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d is frozen", id.Machine, id.Boot)
}
