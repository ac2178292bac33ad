package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Memory is a host that exists in memory only. Its tasks run the little
// programs of [Script] and outlive the drivers that are made on it, as real
// ones outlive a daemon:
//
//	host := drivertest.NewMemory()
//	d := host.Driver()         // the daemon's
//	d.Recover(ctx)
//	…
//	d = host.Driver()          // the daemon was killed and has come back
//
// It starts no goroutine and has no clock of its own, so it works inside a
// synctest bubble (then make it inside) and leaves nothing behind.
type Memory struct {
	mu       sync.Mutex
	hooks    Hooks
	labels   map[string]string
	current  *MemoryDriver
	machines map[bourse.MachineID]*memMachine
	lastPID  int
	starts   int
}

// Hooks are called around every call of a driver made on the host, outside
// its locks. They may block (a slow host), give an error (a failing one),
// panic or call runtime.Goexit (a daemon that dies there).
type Hooks struct {
	// Before comes before the effect; its error is the call's and nothing
	// happens.
	Before func(ctx context.Context, call Call) error
	// After comes after the effect; its error is the call's, but the effect
	// stays, as when an answer was lost.
	After func(ctx context.Context, call Call) error
}

// Call says which call a hook is about.
type Call struct {
	Op      string // "Start", "Stop", …: the method's name
	ID      driver.TaskID
	Machine bourse.MachineID // always set but for Recover
}

// memMachine is what the host has of a machine: its log, and the tasks that
// are not forgotten.
type memMachine struct {
	log       memLog
	tasks     map[int]*memTask // by boot
	newest    int              // the highest boot ever started
	destroyed chan struct{}    // closed by Destroy
}

// memTask is one task. Its fields are guarded by the host's mutex; done is
// closed once exit is set.
type memTask struct {
	task    driver.Task
	status  driver.Status
	program *program
	execs   map[*program]bool // in progress
	frozen  bool
	waiting []func() // what its program does, and is sent, once it is thawed
	done    chan struct{}
}

// NewMemory makes an empty host that says it enforces every limit.
func NewMemory() *Memory {
	return &Memory{
		machines: map[bourse.MachineID]*memMachine{},
		labels:   map[string]string{"cgroup": "none", "suspend": "freezer", "limit.memory": "cgroup", "limit.cpu": "cgroup", "limit.pids": "cgroup"},
		lastPID:  1000,
	}
}

// SetHooks replaces the hooks.
func (m *Memory) SetHooks(h Hooks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks = h
}

// SetLabels replaces what the drivers' Labels gives.
func (m *Memory) SetLabels(labels map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labels = labels
}

// Driver makes the driver of a daemon that has just started on the host. An
// earlier one is cut off: its calls, those in progress too, give
// CodeUnavailable from now on and change nothing more.
func (m *Memory) Driver() *MemoryDriver {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.current.cutLocked()
	}
	m.current = &MemoryDriver{host: m, cut: make(chan struct{})}
	return m.current
}

// Running returns the ids of the tasks that run now, in no order: what a host's
// process table would show.
func (m *Memory) Running() []driver.TaskID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []driver.TaskID
	for _, machine := range m.machines {
		for _, t := range machine.tasks {
			if t.status.Exit == nil {
				out = append(out, t.status.ID)
			}
		}
	}
	return out
}

// Processes tells how many programs run now, execs included.
func (m *Memory) Processes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, machine := range m.machines {
		for _, t := range machine.tasks {
			n += len(t.execs)
			if t.status.Exit == nil {
				n++
			}
		}
	}
	return n
}

// Frozen returns the ids of the tasks that are frozen now, in no order.
func (m *Memory) Frozen() []driver.TaskID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []driver.TaskID
	for _, machine := range m.machines {
		for _, t := range machine.tasks {
			if t.frozen && t.status.Exit == nil {
				out = append(out, t.status.ID)
			}
		}
	}
	return out
}

// Machines returns the machines of which the host keeps anything, in no order.
func (m *Memory) Machines() []bourse.MachineID {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]bourse.MachineID, 0, len(m.machines))
	for id, machine := range m.machines {
		if machine.newest > 0 { // else only someone waits for its first line
			out = append(out, id)
		}
	}
	return out
}

// Starts tells how many programs were ever started: idempotent repeats do not
// count.
func (m *Memory) Starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

// End ends a running task as if its program had ended by itself.
func (m *Memory) End(id driver.TaskID, exit bourse.Exit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.taskLocked(id); t != nil {
		m.endLocked(t, exit)
	}
}

// Lose makes the host forget how its tasks ended, as when a driver's
// machinery was killed together with everything that it ran.
func (m *Memory) Lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, machine := range m.machines {
		for _, t := range machine.tasks {
			m.endLocked(t, bourse.Exit{Code: -1, Error: "the memory host was lost"})
		}
	}
}

func (m *Memory) taskLocked(id driver.TaskID) *memTask {
	machine := m.machines[id.Machine]
	if machine == nil {
		return nil
	}
	return machine.tasks[id.Boot]
}

func (m *Memory) endLocked(t *memTask, exit bourse.Exit) {
	if t.status.Exit != nil {
		return
	}
	t.program.stop()
	for p := range t.execs {
		p.end(bourse.Exit{Code: -1, Signal: bourse.Signal("SIGKILL").Number()})
	}
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	t.status.Exit, t.status.PID = &exit, 0
	close(t.done)
}
