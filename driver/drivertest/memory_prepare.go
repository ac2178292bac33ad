package drivertest

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var _ driver.Preparer = (*MemoryDriver)(nil)

// Prepare implements driver.Preparer. What is prepared stays so until it is
// started or destroyed, or the driver is cut off: who forgets it is found out
// by Memory.Prepared.
func (d *MemoryDriver) Prepare(task driver.Task) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.current == d && d.host.taskLocked(task.ID) == nil {
		d.prepared[task.ID] = true
	}
}

// Prepared gives the tasks that are prepared and were not started, in no order.
func (m *Memory) Prepared() []driver.TaskID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []driver.TaskID
	if m.current != nil {
		for id := range m.current.prepared {
			out = append(out, id)
		}
	}
	return out
}

// unprepareLocked forgets what was prepared of a machine.
func (d *MemoryDriver) unprepareLocked(id bourse.MachineID) {
	for task := range d.prepared {
		if task.Machine == id {
			delete(d.prepared, task)
		}
	}
}
