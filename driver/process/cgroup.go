package process

import (
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// group is the cgroups that one task's processes live in.
type group interface {
	// limit sets the limits. It is called once the program has been executed:
	// until then the child shares the supervisor's memory.
	limit(l driver.Limits) error
	// killAll kills every process in the group, however it got there, and
	// returns when none is left or grace is over.
	killAll(grace time.Duration)
	// oomKilled tells whether the kernel has killed a process of the group
	// for using too much memory.
	oomKilled() bool
	// usage tells what the group's processes use: what is not accounted is
	// negative.
	usage() driver.Usage
	// members gives the group's processes.
	members() []int
	remove() error
}

// grouping makes groups and forks children into them.
type grouping interface {
	// fork runs forkExec so that its child is born inside a group: in, or a
	// new one for the limits when in is nil. One that was lent is new, too,
	// and is the task's once the fork has succeeded. The group it gives may be nil:
	// there are none.
	fork(in group, l driver.Limits, forkExec forkFunc) (pid int, g group, err error)
	// lend runs work, which forks a task, on a thread that stands ready in a
	// new group: work passes the group to fork. It does not wait for work, and
	// tells whether there was such a thread.
	lend(work func(here group)) bool
	// stands tells whether lend ever has such a thread.
	stands() bool
	// labels are driver.Driver's.
	labels() map[string]string
	// close removes what all groups stand in. It is called last.
	close()
}

// forkFunc forks and executes with the given attributes.
type forkFunc func(attr *syscall.SysProcAttr) (pid int, err error)

// ungrouped is for hosts without cgroups, or without the right to use them.
// Resource limits of single processes are no substitute: RLIMIT_AS and
// RLIMIT_DATA count address space that programs reserve and never touch, and
// RLIMIT_NPROC counts all processes of a user. So nothing is enforced, and the
// labels say so.
type ungrouped struct{}

func (ungrouped) fork(_ group, _ driver.Limits, forkExec forkFunc) (int, group, error) {
	pid, err := forkExec(&syscall.SysProcAttr{})
	return pid, nil, err
}

func (ungrouped) lend(func(group)) bool     { return false }
func (ungrouped) stands() bool              { return false }
func (ungrouped) labels() map[string]string { return map[string]string{"cgroup": "none"} }
func (ungrouped) close()                    {}
