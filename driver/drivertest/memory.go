package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Memory is a host that exists only in memory. Its tasks run small programs (see [Script]). As on a
// real host, tasks outlive the host's drivers:
//
//	host := drivertest.NewMemory()
//	d := host.Driver()         // the daemon's
//	d.Recover(ctx)
//	…
//	d = host.Driver()          // the daemon was killed and restarted
//
// A Memory does not start any goroutines, and measures time with package time, so it can be used in a synctest bubble
// if it is created in that bubble.
type Memory struct {
	mu       sync.Mutex
	hooks    Hooks
	labels   map[string]string
	current  *MemoryDriver
	machines map[bourse.MachineID]*memMachine
	lastPID  int
	starts   int
}

// Hooks are functions that the host's drivers call before and after every operation, without holding the host's locks.
// A hook may block, return an error, panic, or call runtime.Goexit to simulate the death of the daemon at that point.
type Hooks struct {
	// Before is called before the driver method has an effect. If it returns an error, the call returns that error and
	// has no effect.
	Before func(ctx context.Context, call Call) error
	// After is called after the driver method has succeeded. If it returns an error, the call returns that error, as if
	// the answer had been lost.
	After func(ctx context.Context, call Call) error
}

// Call identifies the driver method that was called, and the task or machine.
type Call struct {
	Op      string // the method's name: "Start", "Stop", …
	ID      driver.TaskID
	Machine bourse.MachineID // empty for Recover
}

// memMachine contains a machine's log and its tasks that have not been discarded.
type memMachine struct {
	log       memLog
	tasks     map[int]*memTask // by boot
	newest    int              // the highest boot that was ever started
	destroyed chan struct{}    // closed by Destroy
}

// memTask is a task. The host's mutex guards its fields. done is closed once exit is set.
type memTask struct {
	task    driver.Task
	status  driver.Status
	program *program
	execs   map[*program]bool // running execs
	frozen  bool
	waiting []func() // effects of the program and of signals, delayed until the task is resumed
	done    chan struct{}
}

// NewMemory returns an empty host. Its drivers report that they enforce limits on memory, CPU and processes.
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

// SetLabels sets the labels that all of the host's drivers return from Labels.
func (m *Memory) SetLabels(labels map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labels = labels
}

// Driver returns a driver for a daemon that has just started on the host. It disconnects the
// previous driver, whose calls, including calls in progress, then return CodeUnavailable and have
// no effect.
func (m *Memory) Driver() *MemoryDriver {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.current.cutLocked()
	}
	m.current = &MemoryDriver{host: m, cut: make(chan struct{})}
	return m.current
}

// Running returns the ids of the running tasks, in no particular order.
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

// Processes returns the number of running programs, including execs.
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

// Frozen returns the ids of the frozen tasks in no particular order.
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

// Machines returns the machines that have a task or a log on the host, in no particular order.
func (m *Memory) Machines() []bourse.MachineID {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]bourse.MachineID, 0, len(m.machines))
	for id, machine := range m.machines {
		if machine.newest > 0 { // otherwise the entry exists only because a call to Logs is waiting for the first line
			out = append(out, id)
		}
	}
	return out
}

// Starts returns the number of programs started so far. Repeated starts of the same boot do not
// count.
func (m *Memory) Starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

// End ends a running task as if its program had exited.
func (m *Memory) End(id driver.TaskID, exit bourse.Exit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.taskLocked(id); t != nil {
		m.endLocked(t, exit)
	}
}

// Lose ends all running tasks with an unknown exit status, as if a driver's own processes had been killed together with
// the tasks.
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
