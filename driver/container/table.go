package container

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// machine is what the driver has of a machine until it is destroyed. Its
// fields are guarded by Driver.mu.
type machine struct {
	tasks      map[int]*task // by boot; those that are not forgotten
	newest     int           // the highest boot that was started in this daemon's life, or is held
	destroying int           // calls of Destroy under way
}

// task is one run of a machine's program.
type task struct {
	id        driver.TaskID
	container string        // id of its container
	started   chan struct{} // closed when its launch is settled
	done      chan struct{} // closed when its exit is known
	gone      chan struct{} // closed when nothing of the driver's works on it any more

	// Fixed from the beginning.
	clearing bool // it is no task: debris is being removed under its id

	// Set before started is closed, fixed then.
	err    error // why it could not be started
	signal bourse.Signal
	tty    bool

	status driver.Status // guarded by Driver.mu
}

func (d *Driver) newTask(id driver.TaskID) *task {
	return &task{
		id: id, container: d.layout.container(id),
		started: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
	}
}

// machineLocked gives a machine's entry, a new one when there is none.
func (d *Driver) machineLocked(id bourse.MachineID) *machine {
	m := d.machines[id]
	if m == nil {
		m = &machine{tasks: map[int]*task{}}
		d.machines[id] = m
	}
	return m
}

// dropLocked removes an entry that says nothing.
func (d *Driver) dropLocked(id bourse.MachineID) {
	if m := d.machines[id]; m != nil && len(m.tasks) == 0 && m.newest == 0 && m.destroying == 0 {
		delete(d.machines, id)
	}
}

// reserve enters a task in the table. mine: it was not there, and the caller
// has to launch and settle it, in a goroutine that d.work counts already.
func (d *Driver) reserve(id driver.TaskID) (t *task, mine bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, false, errUnavailable(errClosed)
	}
	m := d.machineLocked(id.Machine)
	defer d.dropLocked(id.Machine)
	if t := m.tasks[id.Boot]; t != nil {
		return t, false, nil
	}
	switch {
	case m.destroying > 0:
		return nil, false, bourse.Errorf(bourse.CodeUnavailable, "machine %s is being destroyed", id.Machine)
	case id.Boot <= m.newest:
		return nil, false, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d is not newer than %d", id.Machine, id.Boot, m.newest)
	}
	for boot, t := range m.tasks {
		if t.status.Exit == nil && !t.clearing {
			return nil, false, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s: boot %d still runs", id.Machine, boot)
		}
	}
	t = d.newTask(id)
	m.tasks[id.Boot] = t
	d.work.Add(1)
	return t, true, nil
}

// settle records how a launch went. Of one that failed nothing is remembered.
func (d *Driver) settle(t *task, status driver.Status, err error) {
	defer close(t.started)
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.machines[t.id.Machine]
	if err == nil {
		t.status = status
		m.newest = max(m.newest, t.id.Boot)
		return
	}
	t.err = err
	delete(m.tasks, t.id.Boot)
	d.dropLocked(t.id.Machine)
}

// adopt enters a task that an earlier daemon started.
func (d *Driver) adopt(t *task, status driver.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.machineLocked(t.id.Machine)
	t.status = status
	m.tasks[t.id.Boot] = t
	m.newest = max(m.newest, t.id.Boot)
	close(t.started)
	if status.Exit != nil {
		close(t.done)
	}
}

// end records a task's end and tells it.
func (d *Driver) end(t *task, exit bourse.Exit) {
	d.mu.Lock()
	t.status = driver.Status{ID: t.id, StartedAt: t.status.StartedAt, Exit: &exit}
	d.mu.Unlock()
	close(t.done)
}

// drop removes a task from the table.
func (d *Driver) drop(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.machines[t.id.Machine]; m != nil && m.tasks[t.id.Boot] == t {
		delete(m.tasks, t.id.Boot)
	}
}

// lookUp gives a task of the table, which may be just starting.
func (d *Driver) lookUp(id driver.TaskID) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, errUnavailable(errClosed)
	}
	if m := d.machines[id.Machine]; m != nil {
		if t := m.tasks[id.Boot]; t != nil {
			return t, nil
		}
	}
	return nil, errNoTask(id)
}

func (d *Driver) statusOf(t *task) driver.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := t.status
	if status.Exit != nil {
		status.Exit = new(*status.Exit) // the caller's own
	}
	return status
}

// list gives the status of every task held, sorted by id.
func (d *Driver) list() []driver.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.Status
	for _, m := range d.machines {
		for _, t := range m.tasks {
			if !t.clearing {
				out = append(out, t.status)
			}
		}
	}
	slices.SortFunc(out, func(a, b driver.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Machine, b.ID.Machine), cmp.Compare(a.ID.Boot, b.ID.Boot))
	})
	return out
}
