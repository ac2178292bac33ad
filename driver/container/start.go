package container

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// Start implements driver.Driver. If ctx is done first, the start continues in the background,
// because containerd's operations cannot be interrupted halfway. If Start is called again for the
// same task, it waits for that start. Destroy undoes the start.
func (d *Driver) Start(ctx context.Context, order driver.Task) (driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return driver.Status{}, err
	}
	if err := checkID(order.ID); err != nil {
		return driver.Status{}, err
	}
	t, mine, err := d.tasks.reserve(d.newTask(order.ID), d.beginCall)
	if err != nil {
		return driver.Status{}, err
	}
	if mine {
		go d.launch(t, order) // reserve has registered this goroutine, so Close waits for it
	}
	if err := d.await(ctx, t.started); err != nil {
		return driver.Status{}, err
	}
	if t.err != nil {
		return driver.Status{}, t.err
	}
	return d.tasks.status(t), nil
}

// launch starts a reserved task, records the result, and then watches the task until it ends.
func (d *Driver) launch(t *task, order driver.Task) {
	defer d.work.Done()
	l := &launch{Driver: d, task: t, order: order}
	status, err := l.start()
	undone := err == nil || d.ctx.Err() != nil || l.undo(err)
	d.tasks.settle(t, status, err)
	if !undone {
		d.removeLater(order.ID)
	}
	if err == nil {
		d.watch(t)
	}
}

// launch is the state of a start in progress.
type launch struct {
	*Driver
	c     *containerd.Client
	task  *task
	order driver.Task

	image      *imageInfo
	root       []mount.Mount
	disk       string // the image's disk, for a virtual machine
	outputRead bool   // the keeper is reading the output
	mayUndo    bool   // objects may exist that undo must remove
}

// start starts the task. If an earlier start of the same task has left objects behind, it removes
// them first.
func (l *launch) start() (driver.Status, error) {
	if err := checkTask(l.order); err != nil {
		return driver.Status{}, err
	}
	if err := l.chooseRuntime(); err != nil {
		return driver.Status{}, err
	}
	limit := launchTimeout
	if l.task.vm {
		limit += bootTimeout
	}
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	ctx, c, release, err := l.connect(ctx)
	if err != nil {
		return driver.Status{}, err
	}
	defer release()
	l.c = c
	status, err := l.run(ctx)
	if errdefs.IsAlreadyExists(err) {
		if err := l.remove(ctx, c, l.order.ID); err != nil {
			return driver.Status{}, withCode(ctx, err)
		}
		status, err = l.run(ctx)
	}
	return status, withCode(ctx, err)
}

// undo cleans up after a failed start. It returns false if objects may be left behind, which is
// always the case if the start failed because containerd was unavailable.
func (l *launch) undo(failure error) bool {
	if !l.mayUndo {
		return true
	}
	err := clearScratch(l.order.Root.Scratch)
	code := bourse.CodeOf(failure)
	if code != bourse.CodeUnavailable {
		remove := l.remove
		if code == bourse.CodeTimeout || l.outputRead { // a shim may exist, or the keeper is reading
			remove = l.purge
		}
		ctx, cancel := context.WithTimeout(l.ctx, removeTimeout)
		defer cancel()
		err = errors.Join(err, l.withClient(ctx, func(ctx context.Context, c *containerd.Client) error { return remove(ctx, c, l.order.ID) }))
	}
	if err != nil {
		l.cfg.Log.Warn("cleanup after failed start failed", "machine", l.order.ID.Machine, "boot", l.order.ID.Boot, "err", err)
	}
	return err == nil && code != bourse.CodeUnavailable
}

// run creates a task's objects in an order that lets Recover find all of them after a crash: first
// a directory, then a snapshot with the driver's mark, then a container, and then the container's
// containerd task. The keeper begins to read the output before the program starts.
func (l *launch) run(ctx context.Context) (driver.Status, error) {
	var err error
	if l.image, err = l.images.get(ctx, l.c, l.order.Image); err != nil {
		return driver.Status{}, err
	}
	l.mayUndo = true
	if err := l.layout.makeTask(l.order.ID, l.order.TTY); err != nil {
		return driver.Status{}, err
	}
	if err := l.layout.makeStdin(l.order.ID, l.order.Stdin); err != nil {
		return driver.Status{}, err
	}
	parts, partsCtx := errgroup.WithContext(ctx)
	parts.Go(func() error { return l.keep(partsCtx) })
	parts.Go(func() (err error) { l.root, err = l.makeRoot(partsCtx); return err })
	if err := parts.Wait(); err != nil {
		return driver.Status{}, err
	}
	record, err := l.record(ctx)
	if err != nil {
		return driver.Status{}, err
	}
	record, err = l.c.ContainerService().Create(ctx, record)
	if err != nil {
		return driver.Status{}, err
	}
	pid, err := l.begin(ctx)
	if err != nil {
		return driver.Status{}, err
	}
	return driver.Status{ID: l.order.ID, PID: pid, StartedAt: record.CreatedAt.UTC()}, nil
}

func (l *launch) keep(ctx context.Context) error {
	l.outputRead = true
	return l.cfg.Keeper.Keep(ctx, l.layout.source(l.order.ID, l.order.TTY))
}

// makeRoot creates the container's root file system.
func (l *launch) makeRoot(ctx context.Context) ([]mount.Mount, error) {
	order := l.order
	if l.task.vm {
		order.Root.Scratch = "" // the directory contains the guest's disk
	}
	root, err := l.prepare(ctx, l.c, order, l.image)
	if isNotFound(err) {
		l.images.forget(l.order.Image)
		return nil, errNoImage(l.order.Image)
	}
	if err != nil {
		return nil, err
	}
	if l.task.vm {
		l.disk, err = l.makeDisk(ctx, root)
		return root, err
	}
	return root, l.writeFiles(l.order, root)
}

// chooseRuntime replaces the order's runtime with containerd's name for it. If the order requests a
// virtual machine, chooseRuntime sets task.vm and uses the default runtime.
func (l *launch) chooseRuntime() error {
	name := cmp.Or(l.order.Root.Runtime, l.cfg.Runtime)
	if l.task.vm = name == bourse.RuntimeVM; l.task.vm {
		if l.cfg.VM == nil {
			return bourse.Errorf(bourse.CodeInvalid, "this host cannot run virtual machines")
		}
		name = DefaultRuntime
	}
	var err error
	l.order.Root.Runtime, err = runtimeOf(name, l.shims())
	return err
}

// record prepares the container's record, which the caller must create in containerd.
func (l *launch) record(ctx context.Context) (containers.Container, error) {
	spec, err := l.specOf(ctx, l.order, l.image, l.root)
	if err != nil {
		return containers.Container{}, err
	}
	var options typeurl.Any
	if l.task.vm {
		spec, err = l.machineSpec(ctx, spec)
	} else if err = writeNetwork(l.order.Network, spec.Hostname, l.layout.task(l.order.ID)); err == nil {
		options, err = l.storeSecrets(spec, l.order.Root.Runtime)
	}
	if err != nil {
		return containers.Container{}, err
	}
	encoded, err := typeurl.MarshalAny(spec)
	if err != nil {
		return containers.Container{}, err
	}
	l.task.tty = l.order.TTY
	if stop, err := bourse.ParseSignal(l.image.config.StopSignal); err == nil {
		l.task.signal = stop
	}
	return containers.Container{
		ID: l.task.container, Image: l.order.Image, Labels: labelsOf(l.layout.mark(), l.task), Spec: encoded,
		Runtime: containers.RuntimeInfo{Name: l.order.Root.Runtime, Options: options}, Snapshotter: l.cfg.Snapshotter, SnapshotKey: l.task.container,
	}, nil
}

// begin creates the container's task in containerd, sets its limits and starts its program.
func (l *launch) begin(ctx context.Context) (pid int, err error) {
	source := l.layout.source(l.order.ID, l.order.TTY)
	root, limits := l.root, l.order.Limits
	if l.task.vm {
		root, limits.PIDs = nil, 0 // the guest mounts the image's disk, and the process limit applies within the guest
	}
	request := &tasks.CreateTaskRequest{
		ContainerID: l.task.container, Rootfs: mount.ToProto(root),
		Stdout: source.Stdout, Stderr: source.Stderr, Terminal: l.order.TTY,
	}
	if len(l.order.Stdin) > 0 {
		request.Stdin = l.layout.stdin(l.order.ID)
	}
	made, err := l.c.TaskService().Create(ctx, request)
	if err != nil {
		return 0, startError(ctx, err, l.hostPaths()...)
	}
	if err := setLateLimits(&l.groups, cgroup.PathOf(l.layout.mark(), l.task.container), limits); err != nil {
		return 0, err
	}
	if _, err := l.c.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: l.task.container}); err != nil {
		return 0, startError(ctx, err, l.hostPaths()...)
	}
	if l.task.vm {
		if err := l.awaitGuest(ctx); err != nil {
			return 0, err
		}
	}
	// The file is not synced, because it only has to survive a crash of this process.
	return int(made.Pid), os.WriteFile(l.layout.started(l.order.ID), nil, 0o600)
}

// hostPaths returns the paths on the host that errors from the runtime must not reveal.
func (l *launch) hostPaths() []string {
	paths := []string{l.layout.dir, l.order.Root.Scratch}
	for _, m := range l.order.Mounts {
		paths = append(paths, m.Source)
	}
	if n := l.order.Network; n != nil {
		paths = append(paths, n.Namespace)
	}
	return paths
}
