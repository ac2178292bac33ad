package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/vm"
)

// recoverConcurrency is the maximum number of concurrent requests to containerd and the keeper.
const recoverConcurrency = 16

// Recover implements driver.Driver: it starts the keeper, adopts running and ended tasks, and removes tasks that an
// earlier daemon had not finished starting.
func (d *Driver) Recover(ctx context.Context) ([]driver.Status, error) {
	if err := d.lockDir(ctx); err != nil {
		return nil, err
	}
	if err := d.cfg.Keeper.Start(ctx); err != nil {
		return nil, err
	}
	d.sweepMounts()
	err := d.withClient(ctx, func(ctx context.Context, c *containerd.Client) error {
		found, err := d.findObjects(ctx, c)
		if err != nil {
			return err
		}
		if err := d.adoptAll(ctx, c, found); err != nil {
			return err
		}
		d.removeDisks(ctx, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.labels = d.driverLabels(d.shims())
	d.mu.Unlock()
	return d.tasks.list(), nil
}

// lockDir creates and locks the driver's directory. It does nothing if the directory is already locked.
func (d *Driver) lockDir(ctx context.Context) error {
	if d.layout.dir != "" {
		return nil
	}
	l, err := newLayout(d.cfg.Dir)
	if err != nil {
		return fmt.Errorf("create the driver's directory: %w", err)
	}
	f, err := lock(ctx, l.dir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return errors.Join(errUnavailable(errClosed), f.Close())
	}
	d.layout, d.lock = l, f
	return nil
}

// foundObjects lists the objects that exist for this driver's tasks.
type foundObjects struct {
	containers map[driver.TaskID]containers.Container
	tasks      map[driver.TaskID]*tasktypes.Process
	others     map[driver.TaskID]bool // tasks with other objects, such as a snapshot, a shim or a directory
}

func (d *Driver) findObjects(ctx context.Context, c *containerd.Client) (*foundObjects, error) {
	s := &foundObjects{
		containers: map[driver.TaskID]containers.Container{}, tasks: map[driver.TaskID]*tasktypes.Process{},
		others: map[driver.TaskID]bool{},
	}
	filter := fmt.Sprintf("labels.%q==%s", labelMark, d.layout.mark())
	// List containerd's tasks before its containers, because a container is created before its containerd task and
	// removed after it. A driver task that appears in neither list therefore had no container when the containers were
	// listed.
	list, err := c.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Tasks {
		if id, ok := d.layout.taskOf(cmp.Or(p.ContainerID, p.ID)); ok {
			s.tasks[id] = p
		}
	}
	records, err := c.ContainerService().List(ctx, filter)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if id, ok := d.layout.taskOf(r.ID); ok {
			s.containers[id] = r
		}
	}
	err = c.SnapshotService(d.cfg.Snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if id, ok := d.layout.taskOf(i.Name); ok {
			s.others[id] = true
		}
		return nil
	}, filter)
	if err != nil {
		return nil, err
	}
	for id := range d.layout.shims(d.cfg.Namespace) {
		s.others[id] = true
	}
	dirs, err := d.layout.list()
	for _, id := range slices.Concat(dirs, d.layout.secretTasks()) {
		s.others[id] = true
	}
	return s, err
}

// adoptAll adopts the tasks in s that were completely started, and removes the objects of all other tasks in s.
func (d *Driver) adoptAll(ctx context.Context, c *containerd.Client, s *foundObjects) error {
	var half atomic.Bool // whether a start was incomplete
	parts, ctx := errgroup.WithContext(ctx)
	parts.SetLimit(recoverConcurrency)
	for id, r := range s.containers {
		parts.Go(func() error {
			adopted, err := d.adoptContainer(ctx, c, id, r, s.tasks[id])
			if err != nil || adopted {
				return err
			}
			half.Store(true)
			return d.purge(ctx, c, id)
		})
	}
	for id := range s.all() {
		if _, ok := s.containers[id]; !ok {
			half.Store(true)
			parts.Go(func() error { return d.purge(ctx, c, id) })
		}
	}
	if err := parts.Wait(); err != nil {
		return err
	}
	if half.Load() {
		d.work.Go(d.sweepLater)
	}
	return nil
}

// all returns the ids of all tasks for which an object exists.
func (s *foundObjects) all() map[driver.TaskID]bool {
	out := maps.Clone(s.others)
	for id := range s.tasks {
		out[id] = true
	}
	for id := range s.containers {
		out[id] = true
	}
	return out
}

// adoptContainer adds a container's task to the table as running, ended or lost. It returns false if the task's
// start was never completed. The caller must then remove the container, because no worker knows about it.
func (d *Driver) adoptContainer(ctx context.Context, c *containerd.Client, id driver.TaskID, r containers.Container, p *tasktypes.Process) (bool, error) {
	t := d.newTask(id)
	t.tty, t.signal, t.vm = r.Labels[labelTTY] != "", bourse.Signal(r.Labels[labelSignal]), r.Labels[labelVM] != ""
	t.suspending.Store(t.vm) // the earlier daemon may have been suspending it
	status := driver.Status{ID: id, StartedAt: r.CreatedAt.UTC()}
	if status.Exit = exitOf(r); status.Exit != nil {
		d.tasks.adopt(t, status)
		d.endTask(t, p != nil)
		return true, nil
	}
	if p == nil { // the list may omit tasks that did not answer in time
		got, err := c.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: r.ID})
		if err != nil && !isNotFound(err) {
			return false, err
		}
		p = got.GetProcess()
	}
	if p != nil && t.vm && !exists(d.layout.started(id)) {
		if started, err := vm.Started(d.layout.machine(id)); !started || err != nil {
			return false, nil //nolint:nilerr // the guest was booting, or could not start the program
		}
	}
	switch {
	case p == nil && !exists(d.layout.started(id)), p != nil && p.Status == tasktypes.Status_CREATED:
		return false, nil
	case p == nil:
		d.tasks.adopt(t, status)
		d.endTask(t, d.finish(t, lostExit(time.Now())))
		return true, nil
	case p.Status == tasktypes.Status_STOPPED:
		d.tasks.adopt(t, status)
		d.endTask(t, d.finish(t, exitFrom(p.ExitStatus, p.ExitedAt)))
		return true, nil
	}
	if err := d.cfg.Keeper.Keep(ctx, d.layout.source(id, t.tty)); err != nil {
		return false, err
	}
	d.endExecs(ctx, c, t)
	status.PID = int(p.Pid)
	d.tasks.adopt(t, status)
	d.work.Go(func() { d.watch(t) })
	return true, os.WriteFile(d.layout.started(id), nil, 0o600)
}

// endTask closes t.gone, after which the ended task can be discarded. If release is true, it first releases the task in
// the background; see Driver.release.
func (d *Driver) endTask(t *task, release bool) {
	if !release {
		close(t.gone)
		return
	}
	d.work.Go(func() {
		defer close(t.gone)
		d.release(t)
	})
}

// sweepMounts removes mounts that an earlier daemon left behind because it died while writing files.
func (d *Driver) sweepMounts() {
	entries, err := os.ReadDir(d.layout.mounts())
	if err != nil {
		return
	}
	for _, e := range entries {
		if id, ok := parseTaskName(e.Name()); ok {
			if err := unmount(d.layout.mount(id)); err != nil {
				d.cfg.Log.Warn("unmount of earlier daemon's leftover failed", "path", d.layout.mount(id), "err", err)
			}
		}
	}
}
