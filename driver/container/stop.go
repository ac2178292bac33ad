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

// Signal implements driver.Driver. The main process of a container gets only
// signals that it handles, and SIGKILL and SIGSTOP: so the kernel has it with
// the first process of a pid namespace.
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
	if isOver(err) {
		return errEnded(id)
	}
	return coded(ctx, err)
}

// kill sends a signal to a container's main process, or to all of its.
func kill(ctx context.Context, c *containerd.Client, container string, signal uint32, all bool) error {
	_, err := c.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: container, Signal: signal, All: all})
	return native(err)
}

// isOver reports whether what was to be killed had ended.
func isOver(err error) bool {
	return err != nil && (isNotFound(err) || errdefs.IsFailedPrecondition(err) || strings.Contains(err.Error(), "process already finished"))
}

// Stop implements driver.Driver. Without a signal it is the image's, or the
// Machines API's default. The signal goes to the main process, which passes it on as it
// likes; SIGKILL ends all.
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
	return coded(ctx, d.stop(ctx, c, t, signal, timeout))
}

func (d *Driver) stop(ctx context.Context, c *containerd.Client, t *task, signal bourse.Signal, timeout time.Duration) error {
	if timeout > 0 && signal != "SIGKILL" {
		if err := freeze(ctx, c, t.container, false); err != nil && !isOver(err) {
			return err
		}
		grace, cancel := context.WithTimeout(ctx, timeout)
		err := d.ask(grace, c, t, signal)
		cancel()
		if err == nil || ctx.Err() != nil || grace.Err() == nil {
			return err
		}
	}
	if err := kill(ctx, c, t.container, uint32(unix.SIGKILL), true); err != nil && !isOver(err) {
		return err
	}
	// Of v1 what is frozen dies as it is thawed, before it does anything. Most
	// runtimes have thawed it already, and then cannot.
	_ = freeze(ctx, c, t.container, false)
	return d.await(ctx, t.done)
}

// ask sends a task a signal and waits for its end. What the main process does
// not handle the kernel drops: one that is just starting is asked again once
// it does.
func (d *Driver) ask(ctx context.Context, c *containerd.Client, t *task, signal bourse.Signal) error {
	pid := d.tasks.status(t).PID
	awaitProgram(ctx, pid)
	send := func(signal int) error {
		err := kill(ctx, c, t.container, uint32(signal), false)
		if isOver(err) {
			return nil
		}
		return err
	}
	heard := handles(pid, signal.Number())
	if err := send(signal.Number()); err != nil {
		return err
	}
	heard = heard && handles(pid, signal.Number())
	for tick := askAgain; ; tick = min(2*tick, retryMost) {
		if !heard && handles(pid, signal.Number()) {
			if err := send(signal.Number()); err != nil {
				return err
			}
			heard = true
		}
		if halted(pid) { // it could not even end
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

// awaitProgram waits a moment for a container that was just started to execute
// its program. Until then the process is runc's, which would die of a signal
// in a way of its own.
func awaitProgram(ctx context.Context, pid int) {
	for range 1000 {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		if err != nil || string(name) != "runc:[2:INIT]\n" || ctx.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// askAgain is how soon it is looked whether a program handles a signal now, or
// has been halted.
const askAgain = 20 * time.Millisecond

// handles reports whether a process would get a signal: it catches it, or has it
// blocked and will see it later. What cannot be looked at does. See
// proc_pid_status(5).
func handles(pid, signal int) bool {
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

// halted reports whether a process is stopped by a signal; see proc_pid_stat(5).
func halted(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil || pid <= 0 {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "T")
}
