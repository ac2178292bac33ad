package cgroup

import (
	"context"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Parent is the parent cgroup of all drivers' cgroups on a host.
const Parent = "bourse"

// MinMemory is the lowest memory limit, in MiB. Below it, the kernel could not always execute a
// program.
const MinMemory = 16

// Groups creates the groups of one driver, below a separate cgroup.
type Groups interface {
	// New creates a group with limits. It returns nil if the host has no usable cgroups.
	New(driver.Limits) (Group, error)
	// ByThread reports whether Group.Fork moves the calling thread into the group permanently. If
	// so, Fork must be called within OnOwnThread.
	ByThread() bool
	// Labels returns the labels for driver.Driver's Labels.
	Labels() map[string]string
	// Close removes the parent cgroups of all groups. It must be called last.
	Close()
}

// Group is the set of cgroups that contain one task's processes.
type Group interface {
	// Fork calls fork so that the child process starts in the group.
	Fork(fork ForkFunc) (pid int, err error)
	// Freeze suspends or resumes all processes of the group, and returns when that is done. If
	// some processes cannot be suspended, it resumes all of them and returns an error. The caller
	// must not fork in the group in the meantime. It returns errors.ErrUnsupported if the host has
	// no freezer, in which case the label "suspend" is missing.
	Freeze(ctx context.Context, frozen bool) error
	// KillAll kills every process in the group, including processes that entered it on their
	// own. It returns when no process remains or grace has passed. Frozen processes die without
	// executing any more of their programs.
	KillAll(grace time.Duration)
	// OOMKilled reports whether the kernel has killed a process in the group because of its
	// memory limit.
	OOMKilled() bool
	// Usage returns the resource usage of the group's processes. Values that the host does not
	// measure are negative.
	Usage() driver.Usage
	// Members returns the group's processes.
	Members() []int
	Remove() error
}

// ForkFunc forks and executes a program with the given attributes. It may add further
// attributes.
type ForkFunc func(*syscall.SysProcAttr) (pid int, err error)

// None implements Groups on hosts where cgroups do not exist or may not be used. Resource limits
// of single processes cannot replace cgroups: RLIMIT_AS and RLIMIT_DATA count address space that
// programs reserve and never touch, and RLIMIT_NPROC counts all processes of a user. So None
// enforces no limits, and its labels say so.
type None struct{}

// New implements Groups.
func (None) New(driver.Limits) (Group, error) { return nil, nil }

// ByThread implements Groups.
func (None) ByThread() bool { return false }

// Labels implements Groups.
func (None) Labels() map[string]string { return map[string]string{"cgroup": "none"} }

// Close implements Groups.
func (None) Close() {}

// memoryOf returns the memory limit in bytes, at least MinMemory, or 0 for no limit.
func memoryOf(l driver.Limits) int64 {
	if l.Memory <= 0 {
		return 0
	}
	return int64(max(MinMemory, l.Memory)) << 20
}
