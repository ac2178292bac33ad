package cgroup

import (
	"context"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Parent is the parent cgroup of all drivers' cgroups on a host.
const Parent = "bourse"

// MinMemory is the lowest memory limit, in MiB. With a lower limit, the kernel may be unable to
// execute a program.
const MinMemory = 16

// Groups creates one driver's groups. All of them have a common parent cgroup, which is not shared
// with other drivers.
type Groups interface {
	// New creates a group with the given limits. It returns nil if the host has no usable cgroups.
	New(driver.Limits) (Group, error)
	// ByThread reports whether Group.Fork moves the calling thread into the group permanently. If
	// so, Fork must be called within OnOwnThread.
	ByThread() bool
	// Labels returns the driver labels for the limits that these groups enforce, the cgroup
	// version, and support for freezing.
	Labels() map[string]string
	// Close removes the parent cgroups. Call it after all groups have been removed.
	Close()
}

// Group is the set of cgroups that contain one task's processes.
type Group interface {
	// Fork calls fork so that the child process starts in the group.
	Fork(fork ForkFunc) (pid int, err error)
	// Freeze suspends all processes in the group, or resumes them if frozen is false, and waits
	// until this has happened. If some processes cannot be suspended, it resumes all of them and
	// returns an error. It returns errors.ErrUnsupported if the host has no freezer, in which case
	// the label "suspend" is missing. The caller must not call Fork at the same time.
	Freeze(ctx context.Context, frozen bool) error
	// KillAll kills every process in the group, including processes that entered it on their own.
	// It returns when no process remains or grace has passed. Frozen processes die without
	// executing another instruction.
	KillAll(grace time.Duration)
	// OOMKilled reports whether the kernel has killed a process in the group because of its
	// memory limit.
	OOMKilled() bool
	// Usage returns the resource usage of the group's processes. Values that the host does not
	// measure are negative.
	Usage() driver.Usage
	// Members returns the ids of the processes in the group.
	Members() []int
	// Remove removes the group's cgroups, which must no longer contain processes.
	Remove() error
}

// ForkFunc forks and executes a program. It applies the given attributes, and may add others.
type ForkFunc func(*syscall.SysProcAttr) (pid int, err error)

// None implements Groups on hosts where cgroups do not exist or may not be used. It does not
// enforce any limits, and its labels do not list any. It does not use resource limits (rlimits)
// instead, because RLIMIT_AS and RLIMIT_DATA count address space that programs reserve but never
// use, and RLIMIT_NPROC counts all processes of a user.
type None struct{}

// New implements Groups.
func (None) New(driver.Limits) (Group, error) { return nil, nil }

// ByThread implements Groups.
func (None) ByThread() bool { return false }

// Labels implements Groups.
func (None) Labels() map[string]string { return map[string]string{"cgroup": "none"} }

// Close implements Groups.
func (None) Close() {}

// memoryOf returns l's memory limit in bytes, raised to MinMemory if necessary. It returns 0 if
// there is no limit.
func memoryOf(l driver.Limits) int64 {
	if l.Memory <= 0 {
		return 0
	}
	return int64(max(MinMemory, l.Memory)) << 20
}
