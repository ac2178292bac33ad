package container

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// DiscardExit implements driver.Driver: it removes the container of an ended task, but not its log.
func (d *Driver) DiscardExit(ctx context.Context, id driver.TaskID) error {
	t, err := d.find(ctx, id)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	if err != nil || d.tasks.status(t).Exit == nil {
		return err
	}
	return d.discard(ctx, t)
}

// discard removes an ended task's objects and its entry in the table.
func (d *Driver) discard(ctx context.Context, t *task) error {
	if err := d.await(ctx, t.gone); err != nil {
		return err
	}
	ctx, c, release, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := d.remove(ctx, c, t.id); err != nil {
		return withCode(ctx, err)
	}
	if t.vm { // its image may have been removed earlier; remove the image's disk now
		d.removeDisks(ctx, c)
	}
	d.tasks.remove(t)
	return nil
}

// Destroy implements driver.Driver.
func (d *Driver) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.ctx.Err() != nil {
		return errUnavailable(errClosed)
	}
	destroyed := false
	list := d.tasks.beginDestroy(id)
	defer func() { d.tasks.endDestroy(id, destroyed) }()
	for _, t := range list {
		if err := d.destroyTask(ctx, t); err != nil {
			return err
		}
	}
	if err := d.removeRemains(ctx, id); err != nil {
		return err
	}
	if err := d.cfg.Keeper.Destroy(ctx, id); err != nil {
		return err
	}
	destroyed = true
	return nil
}

// destroyTask kills and removes a task. If the task is still starting, destroyTask waits for the
// start.
func (d *Driver) destroyTask(ctx context.Context, t *task) error {
	if err := d.await(ctx, t.started); err != nil {
		return err
	}
	if t.err != nil {
		return nil //nolint:nilerr // the start failed and was undone
	}
	if d.tasks.status(t).Exit == nil {
		if err := d.Stop(ctx, t.id, "SIGKILL", 0); err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			return err
		}
	}
	return d.discard(ctx, t)
}

// Shutdown destroys every machine that has a task in this driver, and then closes the driver.
func (d *Driver) Shutdown(ctx context.Context) error {
	var all error
	for _, status := range d.tasks.list() {
		all = errors.Join(all, d.Destroy(ctx, status.ID.Machine))
	}
	return errors.Join(all, d.Close())
}

// remove kills a task's program if it is running, and removes the task's objects: its containerd
// task, container, snapshot, secrets, directory and cgroup. It ignores missing objects and may
// be repeated.
func (d *Driver) remove(ctx context.Context, c *containerd.Client, id driver.TaskID) error {
	container := d.layout.container(id)
	if err := deleteTask(ctx, c, container); err != nil {
		return err
	}
	if err := c.ContainerService().Delete(ctx, container); err != nil && !isNotFound(err) {
		return err
	}
	if err := c.SnapshotService(d.cfg.Snapshotter).Remove(ctx, container); err != nil && !isNotFound(err) {
		return err
	}
	d.groups.Remove(cgroup.PathOf(d.layout.mark(), container))
	if d.cfg.Address != "" {
		_ = os.Remove(shimSocket(d.cfg.Address, d.cfg.Namespace, container)) // a shim that exited normally has removed its socket
	}
	return errors.Join(removeSecrets(container), os.RemoveAll(d.layout.task(id)))
}

// deleteTask deletes a container's task from containerd. If the task is running, deleteTask kills
// it first.
func deleteTask(ctx context.Context, c *containerd.Client, container string) error {
	service := c.TaskService()
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		_, err := service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: container})
		if err == nil || isNotFound(err) {
			return nil
		}
		if e := withCode(ctx, err); ctx.Err() != nil || bourse.CodeOf(e) == bourse.CodeUnavailable && !isShimGone(err) {
			return e
		}
		// The task is running or being created, or its shim has died and containerd has not noticed
		// that yet.
		if err := kill(ctx, c, container, uint32(unix.SIGKILL), true); err != nil && !isEnded(err) && !isShimGone(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), toErrdefs(err))
		}
	}
}

func setLabel(ctx context.Context, c *containerd.Client, container, name, value string) error {
	_, err := c.ContainerService().Update(ctx, containers.Container{ID: container, Labels: map[string]string{name: value}}, "labels."+name)
	return err
}

// withClient runs call with a containerd client and a context that contains the namespace.
func (d *Driver) withClient(ctx context.Context, call func(context.Context, *containerd.Client) error) error {
	ctx, c, release, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	return withCode(ctx, call(ctx, c))
}
