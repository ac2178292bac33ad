package container

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Signal implements driver.Driver. A container's main process is the init process of its pid
// namespace. To such a process, the kernel delivers only SIGKILL, SIGSTOP and the signals that the
// process handles.
func (d *Driver) Signal(ctx context.Context, id driver.TaskID, signal bourse.Signal) error {
	if err := signal.Validate(); err != nil {
		return err
	}
	t, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if d.tasks.status(t).Exit != nil {
		return errEnded(id)
	}
	ctx, c, release, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	awaitProgram(ctx, d.tasks.status(t).PID)
	err = kill(ctx, c, t.container, uint32(signal.Number()), false)
	if isEnded(err) {
		return errEnded(id)
	}
	return withCode(ctx, err)
}

// kill sends a signal to a container's main process, or to all its processes.
func kill(ctx context.Context, c *containerd.Client, container string, signal uint32, all bool) error {
	_, err := c.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: container, Signal: signal, All: all})
	return toErrdefs(err)
}

// isEnded reports whether err means that the process has already ended.
func isEnded(err error) bool {
	return err != nil && (isNotFound(err) || errdefs.IsFailedPrecondition(err) || strings.Contains(err.Error(), "process already finished"))
}

// Stop implements driver.Driver. If signal is empty, it uses the image's stop signal or
// bourse.DefaultStopSignal. The signal is sent only to the main process, which may forward it.
// SIGKILL is sent to all processes.
func (d *Driver) Stop(ctx context.Context, id driver.TaskID, signal bourse.Signal, timeout time.Duration) error {
	if signal != "" {
		if err := signal.Validate(); err != nil {
			return err
		}
	}
	t, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if d.tasks.status(t).Exit != nil {
		return nil
	}
	if signal == "" {
		signal = cmp.Or(t.signal, bourse.DefaultStopSignal)
	}
	ctx, c, release, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	return withCode(ctx, d.stop(ctx, c, t, signal, timeout))
}

func (d *Driver) stop(ctx context.Context, c *containerd.Client, t *task, signal bourse.Signal, timeout time.Duration) error {
	if timeout > 0 && signal != "SIGKILL" {
		grace, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		over := func(err error) bool { return grace.Err() != nil || isLate(grace, err) }
		err := d.thaw(grace, c, t)
		if err != nil && !isEnded(err) && !t.vm && (ctx.Err() != nil || !over(err)) { // if a virtual machine cannot be resumed, continue and kill it
			return err
		}
		err = d.signalAndWait(grace, c, t, signal)
		if err == nil || ctx.Err() != nil || !over(err) {
			return err
		}
	}
	if err := kill(ctx, c, t.container, uint32(unix.SIGKILL), true); err != nil && !isEnded(err) {
		return err
	}
	// With cgroup v1, a frozen process that has been killed does not die until it is thawed. It
	// then dies without executing another instruction. Ignore errors, because thawing fails if the
	// runtime has already thawed the container, as most runtimes do.
	_ = freeze(ctx, c, t.container, false)
	return d.await(ctx, t.done)
}

// signalAndWait sends a signal to a task and waits until the task ends. The kernel drops signals
// that the main process does not handle. If the program is still starting and does not handle the
// signal yet, signalAndWait sends the signal again once the program handles it.
func (d *Driver) signalAndWait(ctx context.Context, c *containerd.Client, t *task, signal bourse.Signal) error {
	pid := d.tasks.status(t).PID
	awaitProgram(ctx, pid)
	send := func(signal int) error {
		err := kill(ctx, c, t.container, uint32(signal), false)
		if isEnded(err) {
			return nil
		}
		return err
	}
	heard := handlesSignal(pid, signal.Number())
	if err := send(signal.Number()); err != nil {
		return err
	}
	heard = heard && handlesSignal(pid, signal.Number())
	for tick := stopInterval; ; tick = min(2*tick, maxRetryDelay) {
		if !heard && handlesSignal(pid, signal.Number()) {
			if err := send(signal.Number()); err != nil {
				return err
			}
			heard = true
		}
		if isStopped(pid) { // a stopped process cannot handle the signal
			if err := send(int(unix.SIGCONT)); err != nil {
				return err
			}
		}
		timer := time.NewTimer(tick)
		select {
		case <-t.done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-d.ctx.Done():
			timer.Stop()
			return errUnavailable(errClosed)
		case <-timer.C:
		}
	}
}

// awaitProgram waits up to about a second for a newly started container to execute its program.
// Until then, its process is still running runc, which handles signals differently.
func awaitProgram(ctx context.Context, pid int) {
	for range 1000 {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		if err != nil || string(name) != "runc:[2:INIT]\n" || ctx.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// stopInterval is the initial interval at which signalAndWait checks whether a program handles the
// signal or has been stopped.
const stopInterval = 20 * time.Millisecond

// handlesSignal reports whether a process catches or blocks a signal. A process receives a blocked
// signal later. It returns true if this cannot be determined. See proc_pid_status(5).
func handlesSignal(pid, signal int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil || pid <= 0 {
		return true
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigCgt" && name != "SigBlk" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil || mask&(1<<(signal-1)) != 0 {
			return true
		}
	}
	return false
}

// isStopped reports whether a process has been stopped by a signal; see proc_pid_stat(5).
func isStopped(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil || pid <= 0 {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "T")
}
