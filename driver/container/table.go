package container

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// table contains the tasks of all machines and decides which boots may start.
type table struct {
	mu       sync.Mutex
	machines map[bourse.MachineID]*machine
}

// machine is the table's entry for a machine that has not been destroyed. table.mu guards its fields.
type machine struct {
	tasks      map[int]*task // by boot; discarded tasks are removed
	newest     int           // the highest boot that this daemon has started or adopted
	destroying int           // number of calls to Destroy in progress
}

// task is one run of a machine's program.
type task struct {
	id        driver.TaskID
	container string        // id of the task's container
	started   chan struct{} // closed when the task's launch has succeeded or failed
	done      chan struct{} // closed when the task's exit is known
	gone      chan struct{} // closed when the driver's goroutines no longer use the task

	// Immutable.
	clearing bool // a placeholder that reserves the id while the leftover objects of an earlier start are removed

	// Set before the channel started is closed, and immutable afterwards.
	err    error // why the start failed
	signal bourse.Signal
	tty    bool
	vm     bool // the container's program is a virtual machine

	suspending atomic.Bool // the virtual machine may be suspended even if its container is not frozen

	status driver.Status // guarded by table.mu
}

func newTable() *table { return &table{machines: map[bourse.MachineID]*machine{}} }

// machineLocked returns a machine's entry, creating it if necessary.
func (t *table) machineLocked(id bourse.MachineID) *machine {
	m := t.machines[id]
	if m == nil {
		m = &machine{tasks: map[int]*task{}}
		t.machines[id] = m
	}
	return m
}

// dropLocked removes a machine's entry if the entry is empty.
func (t *table) dropLocked(id bourse.MachineID) {
	if m := t.machines[id]; m != nil && len(m.tasks) == 0 && m.newest == 0 && m.destroying == 0 {
		delete(t.machines, id)
	}
}

// reserve adds the new task n to the table and returns it, with mine set to true. The caller must then launch and
// settle the task. If the table already contains a task with that id, reserve returns that task and sets mine to false.
// Before it adds the task, reserve calls begin. If begin returns false, reserve returns an error and does not add the
// task.
func (t *table) reserve(n *task, begin func() bool) (_ *task, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := n.id
	m := t.machineLocked(id.Machine)
	defer t.dropLocked(id.Machine)
	if held := m.tasks[id.Boot]; held != nil {
		return held, false, nil
	}
	switch {
	case m.destroying > 0:
		return nil, false, bourse.Errorf(bourse.CodeUnavailable, "machine %s is being destroyed", id.Machine)
	case id.Boot <= m.newest:
		return nil, false, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is not newer than %d", id.Machine, id.Boot, m.newest)
	}
	for boot, held := range m.tasks {
		if held.status.Exit == nil && !held.clearing {
			return nil, false, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is still running", id.Machine, boot)
		}
	}
	if !begin() {
		return nil, false, errUnavailable(errClosed)
	}
	m.tasks[id.Boot] = n
	return n, true, nil
}

// clear adds the placeholder n to the table, so that the same boot cannot be started while the leftover objects of an
// earlier start are being removed. It returns false if the table already contains a task with that id.
func (t *table) clear(n *task) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.clearing = true
	m := t.machineLocked(n.id.Machine)
	if m.tasks[n.id.Boot] != nil {
		return false
	}
	m.tasks[n.id.Boot] = n
	return true
}

// settle records the result of a launch. A failed task is removed from the table.
func (t *table) settle(n *task, status driver.Status, err error) {
	defer close(n.started)
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[n.id.Machine]
	if err == nil {
		n.status = status
		m.newest = max(m.newest, n.id.Boot)
		return
	}
	n.err = err
	delete(m.tasks, n.id.Boot)
	t.dropLocked(n.id.Machine)
}

// adopt adds a task that an earlier daemon started.
func (t *table) adopt(n *task, status driver.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machineLocked(n.id.Machine)
	n.status = status
	m.tasks[n.id.Boot] = n
	m.newest = max(m.newest, n.id.Boot)
	close(n.started)
	if status.Exit != nil {
		close(n.done)
	}
}

// end records a task's exit and wakes the goroutines that wait for it.
func (t *table) end(n *task, exit bourse.Exit) {
	t.mu.Lock()
	n.status = driver.Status{ID: n.id, StartedAt: n.status.StartedAt, Exit: &exit}
	t.mu.Unlock()
	close(n.done)
}

// remove removes a task from the table.
func (t *table) remove(n *task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[n.id.Machine]; m != nil && m.tasks[n.id.Boot] == n {
		delete(m.tasks, n.id.Boot)
	}
}

// task returns a task, which may still be starting. It returns nil if the task is not in the table.
func (t *table) task(id driver.TaskID) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[id.Machine]; m != nil {
		return m.tasks[id.Boot]
	}
	return nil
}

func (t *table) status(n *task) driver.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := n.status
	if status.Exit != nil {
		status.Exit = new(*status.Exit) // the caller gets its own copy
	}
	return status
}

// list returns the status of every task, sorted by id.
func (t *table) list() []driver.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []driver.Status
	for _, m := range t.machines {
		for _, n := range m.tasks {
			if !n.clearing {
				out = append(out, n.status)
			}
		}
	}
	slices.SortFunc(out, func(a, b driver.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Machine, b.ID.Machine), cmp.Compare(a.ID.Boot, b.ID.Boot))
	})
	return out
}

// beginDestroy prevents new starts of a machine's tasks, and returns the existing tasks.
func (t *table) beginDestroy(id bourse.MachineID) []*task {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machineLocked(id)
	m.destroying++
	return slices.Collect(maps.Values(m.tasks))
}

// endDestroy allows new starts of a machine's tasks again. If the machine was destroyed, its next boot
// may have any number.
func (t *table) endDestroy(id bourse.MachineID, destroyed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[id]
	m.destroying--
	if destroyed {
		m.newest = 0
	}
	t.dropLocked(id)
}
