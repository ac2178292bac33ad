package process

import (
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// mirror is the daemon's copy of the supervisor's table. Updates are applied in the order in which the supervisor sends
// them. While a connection exists, only the goroutine that reads from it changes the mirror.
type mirror struct {
	mu    sync.Mutex
	tasks map[driver.TaskID]*mirrored
}

type mirrored struct {
	status driver.Status
	done   chan struct{} // closed once status.Exit is set
}

// put stores a task's status. It never overwrites a status that contains an exit, because the answer to a Start may
// arrive after the event that reports the task's end.
func (m *mirror) put(status driver.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[status.ID]
	if t == nil {
		t = &mirrored{done: make(chan struct{})}
		m.tasks[status.ID] = t
	}
	if t.status.Exit != nil {
		return
	}
	t.status = status
	if status.Exit != nil {
		close(t.done)
	}
}

func (m *mirror) get(id driver.TaskID) (driver.Status, <-chan struct{}, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[id]
	if t == nil {
		return driver.Status{}, nil, false
	}
	return t.status, t.done, true
}

func (m *mirror) forget(id driver.TaskID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tasks, id)
}

func (m *mirror) destroy(id bourse.MachineID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for task := range m.tasks {
		if task.Machine == id {
			delete(m.tasks, task)
		}
	}
}

func (m *mirror) all() []driver.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]driver.Status, 0, len(m.tasks))
	for _, t := range m.tasks {
		out = append(out, t.status)
	}
	return out
}

// replace updates the mirror with list, the tasks of a newly connected supervisor. If a running task is missing from
// list, replace stores lost as that task's exit. It returns the statuses of all tasks that are missing from list. Each
// of these statuses contains an exit.
func (m *mirror) replace(list []driver.Status, lost bourse.Exit) (unheld []driver.Status) {
	for _, status := range list {
		m.put(status)
	}
	held := make(map[driver.TaskID]bool, len(list))
	for _, status := range list {
		held[status.ID] = true
	}
	for _, status := range m.all() {
		if held[status.ID] {
			continue
		}
		if status.Exit == nil {
			status.Exit, status.PID = &lost, 0
			m.put(status)
		}
		unheld = append(unheld, status)
	}
	return slices.Clip(unheld)
}

// exit returns the exit of an ended task. It returns CodeNotFound if the task was discarded in the meantime.
func (m *mirror) exit(id driver.TaskID) (bourse.Exit, error) {
	status, _, ok := m.get(id)
	if !ok || status.Exit == nil {
		return bourse.Exit{}, errNoTask(id)
	}
	return *status.Exit, nil
}
