package drivertest

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// MemoryDriver is a driver on a Memory host.
type MemoryDriver struct {
	host *Memory
	cut  chan struct{} // closed once the host has created a newer driver
}

var _ driver.Driver = (*MemoryDriver)(nil)

func errCut() error {
	return bourse.Errorf(bourse.CodeUnavailable, "this driver's daemon is dead")
}

func (d *MemoryDriver) cutLocked() { close(d.cut) }

// do calls the Before hook, fn and the After hook.
func (d *MemoryDriver) do(ctx context.Context, call Call, fn func() error) error {
	d.host.mu.Lock()
	hooks := d.host.hooks
	d.host.mu.Unlock()
	if call.Machine == "" {
		call.Machine = call.ID.Machine
	}
	if hooks.Before != nil {
		if err := hooks.Before(ctx, call); err != nil {
			return err
		}
	}
	select {
	case <-d.cut:
		return errCut()
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	if hooks.After != nil {
		return hooks.After(ctx, call)
	}
	return nil
}

// locked is like do, but holds the host's mutex while it calls fn, and does not call fn if the driver is disconnected.
func (d *MemoryDriver) locked(ctx context.Context, call Call, fn func() error) error {
	return d.do(ctx, call, func() error {
		d.host.mu.Lock()
		defer d.host.mu.Unlock()
		if d.host.current != d {
			return errCut()
		}
		return fn()
	})
}

func (m *Memory) machineLocked(id bourse.MachineID) *memMachine {
	machine := m.machines[id]
	if machine == nil {
		machine = &memMachine{tasks: map[int]*memTask{}, destroyed: make(chan struct{})}
		machine.log.more = make(chan struct{})
		m.machines[id] = machine
	}
	return machine
}

// Recover implements driver.Driver.
func (d *MemoryDriver) Recover(ctx context.Context) ([]driver.Status, error) {
	var out []driver.Status
	err := d.locked(ctx, Call{Op: "Recover"}, func() error {
		for _, machine := range d.host.machines {
			for _, t := range machine.tasks {
				out = append(out, t.status)
			}
		}
		return nil
	})
	return out, err
}

// Start implements driver.Driver.
func (d *MemoryDriver) Start(ctx context.Context, task driver.Task) (driver.Status, error) {
	var status driver.Status
	err := d.locked(ctx, Call{Op: "Start", ID: task.ID}, func() error {
		m := d.host
		if t := m.taskLocked(task.ID); t != nil {
			status = t.status
			return nil
		}
		if err := checkScript(task.Command); err != nil {
			return err
		}
		if len(task.Stdin) > driver.MaxStdin {
			return bourse.Errorf(bourse.CodeInvalid, "stdin is %d bytes long; the maximum is %d", len(task.Stdin), driver.MaxStdin)
		}
		if machine := m.machines[task.ID.Machine]; machine != nil {
			if err := machine.admits(task.ID); err != nil {
				return err
			}
		}
		status = m.startLocked(task).status
		return nil
	})
	return status, err
}

func (machine *memMachine) admits(id driver.TaskID) error {
	if machine.newest >= id.Boot {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is not newer than %d", id.Machine, id.Boot, machine.newest)
	}
	for boot, t := range machine.tasks {
		if t.status.Exit == nil {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is still running", id.Machine, boot)
		}
	}
	return nil
}

func (m *Memory) startLocked(task driver.Task) *memTask {
	machine := m.machineLocked(task.ID.Machine)
	if task.Dir == "" {
		task.Dir = "/machines/" + string(task.ID.Machine)
	}
	m.lastPID++
	m.starts++
	t := &memTask{
		task:   task,
		status: driver.Status{ID: task.ID, PID: m.lastPID, StartedAt: time.Now()},
		execs:  map[*program]bool{},
		done:   make(chan struct{}),
	}
	t.program = &program{task: task, rest: task.Command, stdin: string(task.Stdin), line: machine.log.add, end: func(e bourse.Exit) { m.endLocked(t, e) }}
	machine.tasks[task.ID.Boot] = t
	machine.newest = task.ID.Boot
	t.program.step(m.timerFor(t, t.program))
	return t
}

// timerFor returns a function that the program p must use to run its timers' callbacks. The function runs a callback
// with the host's mutex held. If the task is frozen, the callback is delayed until the task is resumed. If p was
// stopped, the callback is dropped.
func (m *Memory) timerFor(t *memTask, p *program) func(func()) {
	return func(fn func()) {
		m.mu.Lock()
		defer m.mu.Unlock()
		t.do(func() {
			if !p.stopped {
				fn()
			}
		})
	}
}

// do calls fn immediately or, if the task is frozen, when the task is resumed.
func (t *memTask) do(fn func()) {
	if t.frozen {
		t.waiting = append(t.waiting, fn)
		return
	}
	fn()
}

// Freeze implements driver.Driver.
func (d *MemoryDriver) Freeze(ctx context.Context, id driver.TaskID, frozen bool) error {
	return d.locked(ctx, Call{Op: "Freeze", ID: id}, func() error {
		t := d.host.taskLocked(id)
		switch {
		case t == nil:
			return errNoTask(id)
		case t.status.Exit != nil:
			return errEnded(id)
		case d.host.labels["suspend"] == "":
			return bourse.Errorf(bourse.CodeFailedPrecondition, "this host has no cgroups that can freeze processes")
		case frozen:
			t.frozen = true
		default:
			t.thaw()
		}
		return nil
	})
}

// thaw resumes a task. The host's mutex must be held.
func (t *memTask) thaw() {
	t.frozen = false
	waiting := t.waiting
	t.waiting = nil
	for _, fn := range waiting {
		fn()
	}
}

// Inspect implements driver.Driver.
func (d *MemoryDriver) Inspect(ctx context.Context, id driver.TaskID) (driver.Status, error) {
	var status driver.Status
	err := d.locked(ctx, Call{Op: "Inspect", ID: id}, func() error {
		t := d.host.taskLocked(id)
		if t == nil {
			return errNoTask(id)
		}
		status = t.status
		return nil
	})
	return status, err
}

func errNoTask(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeNotFound, "no task %s/%d", id.Machine, id.Boot)
}

func errEnded(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d has ended", id.Machine, id.Boot)
}

// await waits until t has ended. It does not hold the host's mutex.
func (d *MemoryDriver) await(ctx context.Context, t *memTask) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	select {
	case <-t.done:
		return nil
	case <-d.cut:
		return errCut()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *MemoryDriver) task(id driver.TaskID) *memTask {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	return d.host.taskLocked(id)
}

// Wait implements driver.Driver.
func (d *MemoryDriver) Wait(ctx context.Context, id driver.TaskID) (bourse.Exit, error) {
	var exit bourse.Exit
	err := d.do(ctx, Call{Op: "Wait", ID: id}, func() error {
		t := d.task(id)
		if t == nil {
			return errNoTask(id)
		}
		if err := d.await(ctx, t); err != nil {
			return err
		}
		exit = *t.status.Exit
		return nil
	})
	return exit, err
}

// Signal implements driver.Driver.
func (d *MemoryDriver) Signal(ctx context.Context, id driver.TaskID, signal bourse.Signal) error {
	return d.locked(ctx, Call{Op: "Signal", ID: id}, func() error {
		t := d.host.taskLocked(id)
		switch err := signal.Validate(); {
		case err != nil:
			return err
		case t == nil:
			return errNoTask(id)
		case t.status.Exit != nil:
			return errEnded(id)
		}
		d.host.signalLocked(t, signal)
		return nil
	})
}

func (m *Memory) signalLocked(t *memTask, signal bourse.Signal) {
	deliver := func() {
		if exit, ends := t.program.signal(signal); ends {
			m.endLocked(t, exit)
		}
	}
	if signal == "SIGKILL" {
		deliver()
		return
	}
	t.do(deliver)
}

// Stop implements driver.Driver.
func (d *MemoryDriver) Stop(ctx context.Context, id driver.TaskID, signal bourse.Signal, timeout time.Duration) error {
	if t := d.task(id); t != nil && t.task.Image != bourse.ImageHost && t.task.Image != "" {
		signal = cmp.Or(signal, "SIGTERM")
	}
	return d.do(ctx, Call{Op: "Stop", ID: id}, func() error {
		if err := signal.Validate(); err != nil {
			return err
		}
		t := d.task(id)
		if t == nil {
			return errNoTask(id)
		}
		d.host.send(t, signal)
		d.host.thaw(t)
		grace, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := d.await(grace, t); err == nil || ctx.Err() != nil || bourse.CodeOf(err) == bourse.CodeUnavailable {
			return err
		}
		d.host.send(t, "SIGKILL")
		return d.await(ctx, t)
	})
}

func (m *Memory) thaw(t *memTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.thaw()
}

func (m *Memory) send(t *memTask, signal bourse.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signalLocked(t, signal)
}

// DiscardExit implements driver.Driver.
func (d *MemoryDriver) DiscardExit(ctx context.Context, id driver.TaskID) error {
	return d.locked(ctx, Call{Op: "DiscardExit", ID: id}, func() error {
		if t := d.host.taskLocked(id); t != nil && t.status.Exit != nil {
			delete(d.host.machines[id.Machine].tasks, id.Boot)
		}
		return nil
	})
}

// Destroy implements driver.Driver.
func (d *MemoryDriver) Destroy(ctx context.Context, id bourse.MachineID) error {
	return d.locked(ctx, Call{Op: "Destroy", Machine: id}, func() error {
		m := d.host
		machine := m.machines[id]
		if machine == nil {
			return nil
		}
		for _, t := range machine.tasks {
			m.signalLocked(t, "SIGKILL")
		}
		close(machine.destroyed)
		delete(m.machines, id)
		return nil
	})
}

// Labels implements driver.Driver.
func (d *MemoryDriver) Labels() map[string]string {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	return maps.Clone(d.host.labels)
}
