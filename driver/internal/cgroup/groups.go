package cgroup

import (
	"context"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Parent is the cgroup under which every driver of a host has its own.
const Parent = "bourse"

// LeastMemory is the smallest limit of memory, in MiB: the kernel could not
// always execute a program under a smaller one.
const LeastMemory = 16

// Groups makes groups below a cgroup of their own.
type Groups interface {
	// New makes a group that has limits. It is nil where there are none.
	New(driver.Limits) (Group, error)
	// ByThread reports whether Group.Fork moves the calling thread into the
	// group and leaves it there: it has to be called by OnOwnThread.
	ByThread() bool
	// Labels are those of driver.Driver.
	Labels() map[string]string
	// Close removes what all groups are in. It is called last.
	Close()
}

// Group is the cgroups that one task's processes live in.
type Group interface {
	// Fork calls fork so that its child is born in the group.
	Fork(fork ForkFunc) (pid int, err error)
	// Freeze halts every process of the group where it is, or lets them go on,
	// and returns when they are so. What could not be halted goes on. Nothing
	// may be forked in the group meanwhile. errors.ErrUnsupported where the host
	// has no freezer: the label "suspend" is missing.
	Freeze(ctx context.Context, frozen bool) error
	// KillAll kills every process in the group, however it got there, and
	// returns when none is left or grace is over. Frozen ones make no further
	// step.
	KillAll(grace time.Duration)
	// OOMKilled reports whether the kernel has killed a process of the group
	// for using too much memory.
	OOMKilled() bool
	// Usage returns what the group's processes use: what is not accounted is
	// negative.
	Usage() driver.Usage
	// Members returns the group's processes.
	Members() []int
	Remove() error
}

// ForkFunc forks and executes with attributes that it may add to.
type ForkFunc func(*syscall.SysProcAttr) (pid int, err error)

// None is for hosts without cgroups, or without the right to use them.
// Resource limits of single processes are no substitute: RLIMIT_AS and
// RLIMIT_DATA count address space that programs reserve and never touch, and
// RLIMIT_NPROC counts all processes of a user. So nothing is enforced, and the
// labels say so.
type None struct{}

// New implements Groups.
func (None) New(driver.Limits) (Group, error) { return nil, nil }

// ByThread implements Groups.
func (None) ByThread() bool { return false }

// Labels implements Groups.
func (None) Labels() map[string]string { return map[string]string{"cgroup": "none"} }

// Close implements Groups.
func (None) Close() {}

// memoryOf returns the bytes that limits allow, 0 for all.
func memoryOf(l driver.Limits) int64 {
	if l.Memory <= 0 {
		return 0
	}
	return int64(max(LeastMemory, l.Memory)) << 20
}
