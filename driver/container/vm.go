package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// The code in this file runs tasks in virtual machines. See package vm for the design.

// makeDisk returns the path of the image's disk, which virtual machines use instead of a snapshot. If the disk does not
// exist, makeDisk creates it from root, the mounts of a new snapshot.
func (l *launch) makeDisk(ctx context.Context, root []mount.Mount) (string, error) {
	return l.cfg.VM.Disk(ctx, l.image.chain, func(context.Context) (string, func() error, error) {
		target := l.layout.mount(l.order.ID)
		if err := os.MkdirAll(target, 0o700); err != nil {
			return "", nil, err
		}
		if err := mount.All(root, target); err != nil {
			return "", nil, errors.Join(err, unmount(target))
		}
		return target, func() error { return unmount(target) }, nil
	})
}

// removeDisks removes the disks of images that no longer exist in containerd. If that fails, it only logs the error,
// because it is called again when the next virtual machine is discarded.
func (d *Driver) removeDisks(ctx context.Context, c *containerd.Client) {
	if d.cfg.VM == nil {
		return
	}
	snapshots := c.SnapshotService(d.cfg.Snapshotter)
	err := d.cfg.VM.RemoveDisks(func(image string) bool {
		_, err := snapshots.Stat(ctx, image)
		return !isNotFound(err)
	})
	if err != nil {
		d.cfg.Log.Warn("remove unused image disks failed", "err", err)
	}
}

// machineSpec returns the specification of a container that runs a virtual machine. inner is the specification of an
// ordinary container with the same program; the guest applies inner's settings.
func (l *launch) machineSpec(ctx context.Context, inner *specs.Spec) (*specs.Spec, error) {
	inner.Process.Env = envOf(inner.Process.Env, l.order.Secrets)
	if err := clearScratch(l.order.Root.Scratch); err != nil {
		return nil, err
	}
	m := vm.Machine{
		Container: l.task.container, Spec: inner, Task: l.order, Disk: l.disk, Dir: l.layout.machine(l.order.ID), Scratch: l.order.Root.Scratch,
	}
	if m.Scratch == "" {
		m.Scratch = l.layout.task(l.order.ID)
	}
	if n := l.order.Network; n != nil && n.Namespace != "" {
		files := networkFiles(n, inner.Hostname)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			m.Files = append(m.Files, driver.File{Path: "/etc/" + name, Data: []byte(files[name]), Mode: 0o644})
		}
	}
	spec, config, err := l.cfg.VM.Prepare(ctx, m)
	if err != nil {
		return nil, err
	}
	paths, err := storeSecrets(l.task.container, nil, []driver.File{{Data: config, Mode: 0o400}})
	if err != nil {
		return nil, err
	}
	user := vm.User(l.task.container)
	spec.Mounts = append(spec.Mounts, vm.MachineMount(paths[0]))
	return spec, os.Chown(paths[0], user, user)
}

// bootInterval is the maximum interval between checks of a booting machine's status.
const bootInterval = 100 * time.Millisecond

// awaitGuest waits until the guest has started the program.
func (l *launch) awaitGuest(ctx context.Context) error {
	dir := l.layout.machine(l.order.ID)
	for pause := minRetryDelay; ; {
		r, err := l.c.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: l.task.container})
		if err != nil {
			return err
		}
		if started, err := vm.Started(dir); started || err != nil {
			return err
		}
		if r.Process.Status == tasktypes.Status_STOPPED {
			return bourse.Errorf(bourse.CodeInternal, "the virtual machine ended before its program was started")
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, bootInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// freezeMachine suspends or resumes a virtual machine. To suspend it, freezeMachine makes the agent write the machine's
// state to a snapshot on disk, and then freezes the container. If the machine cannot be suspended, it keeps running. If
// it cannot be resumed, it is killed.
func (d *Driver) freezeMachine(ctx context.Context, c *containerd.Client, t *task, frozen bool) error {
	if frozen {
		if is, err := isFrozen(ctx, c, t.container); err != nil || is {
			return err
		}
		t.suspending.Store(true)
		if err := d.askAgent(ctx, c, t, true); err != nil {
			return err
		}
		return freeze(ctx, c, t.container, true)
	}
	if err := freeze(ctx, c, t.container, false); err != nil {
		return err
	}
	err := d.askAgent(ctx, c, t, false)
	if err == nil {
		t.suspending.Store(false)
	}
	if bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		return err
	}
	d.cfg.Log.Warn("restore virtual machine from its snapshot failed", "machine", t.id.Machine, "boot", t.id.Boot, "err", err)
	ending, cancel := context.WithTimeout(ctx, doneTimeout)
	defer cancel()
	if d.await(ending, t.done) == nil {
		return errEnded(t.id)
	}
	return cmp.Or(d.stop(ctx, c, t, "SIGKILL", 0), errEnded(t.id))
}

// askAgent makes the agent in a virtual machine's container suspend or resume the machine. If ctx is done first, the
// agent continues. askAgent returns CodeFailedPrecondition if the agent refused. After any other error, it is unknown
// whether the machine was suspended or resumed.
func (d *Driver) askAgent(ctx context.Context, c *containerd.Client, t *task, suspend bool) error {
	if !d.beginCall() {
		return errUnavailable(errClosed)
	}
	defer d.work.Done()
	const maxText = 1 << 10
	x := &execution{
		Driver: d, c: c, task: t, exec: driver.Exec{Limit: maxText}, args: vm.SuspendCommand(suspend), id: execPrefix + strings.ToLower(rand.Text()),
	}
	r, err := x.run(ctx)
	if err != nil || r.Exit.Code == 0 {
		return err
	}
	text := vm.Printable(string(r.Stderr))
	if r.Exit.Code == session.Refused {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "virtual machine: %s", text)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "virtual machine: the agent failed with exit code %d: %s", r.Exit.Code, text)
}

// writeProgram writes the exec's program to a file in the virtual machine's directory. It returns the command line of
// an agent that runs this program in the guest.
func (x *execution) writeProgram() ([]string, error) {
	program := session.Program{Args: x.exec.Command, Terminal: x.exec.Terminal != nil, Stdin: x.exec.Stdin != nil || x.exec.Terminal != nil}
	if x.exec.Terminal != nil {
		program.Term = cmp.Or(x.exec.Terminal.Term, defaultTerm)
	}
	return vm.ExecCommand(x.id), vm.WriteExec(x.layout.machine(x.task.id), x.task.container, x.id, program)
}
