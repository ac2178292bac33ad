package container

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// If the daemon dies at the wrong moment during a start, containerd may lose track of the shim,
// which then keeps running. The driver finds such shims by their command lines, which contain the
// container's id.

// shims returns the process ids of the running shims for this driver's tasks.
func (l layout) shims(namespace string) map[driver.TaskID][]int {
	out := map[driver.TaskID][]int{}
	for _, pid := range processes() {
		if id, ok := l.shimOf(pid, namespace); ok {
			out[id] = append(out[id], pid)
		}
	}
	return out
}

// processes returns the ids of all processes.
func processes() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// shimOf returns the task that a shim process belongs to. It returns false if the process is not a
// shim of this driver.
func (l layout) shimOf(pid int, namespace string) (driver.TaskID, bool) {
	args := arguments(pid)
	if !isShim(args) || argAfter(args, "-namespace") != namespace {
		return driver.TaskID{}, false
	}
	return l.taskOf(argAfter(args, "-id"))
}

// isShim reports whether a command line is that of a shim.
func isShim(args []string) bool { return strings.Contains(args[0], "containerd-shim") }

// arguments returns a process's command line. If the process has exited, it returns a single empty
// argument.
func arguments(pid int) []string {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.Split(string(text), "\x00")
}

func argAfter(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// endShims terminates a task's shims, which containerd has lost track of, and removes their mounts.
func (d *Driver) endShims(id driver.TaskID) {
	of := func(pid int) bool {
		got, ok := d.layout.shimOf(pid, d.cfg.Namespace)
		return ok && got == id
	}
	for _, pid := range d.layout.shims(d.cfg.Namespace)[id] {
		if endShim(pid, of) {
			d.groups.Kill(cgroup.PathOf(d.layout.mark(), d.layout.container(id)), killGrace)
			d.cfg.Log.Warn("leftover shim terminated", "machine", id.Machine, "boot", id.Boot, "pid", pid)
		}
	}
}

// EndShims terminates the shims in all of containerd's namespaces whose names begin with prefix, and the main processes
// of their containers. It is needed because containerd loses track of a task's shim if the driver is killed while
// containerd is deleting the task. It must be called only if no driver uses these namespaces.
func EndShims(prefix string) {
	in := func(pid int) bool {
		args := arguments(pid)
		return isShim(args) && strings.HasPrefix(argAfter(args, "-namespace"), prefix)
	}
	for _, pid := range processes() {
		if in(pid) {
			endShim(pid, in)
		}
	}
}

// endShim terminates a shim and its children, and unmounts its container's root file system. The children must be
// terminated, too, because one of them may be a runtime that is still creating cgroups and would create more after the
// caller has removed the existing ones. endShim returns false if the shim has already exited. Because process ids are
// reused, the caller must provide the function is, which reports whether pid still belongs to the shim.
func endShim(pid int, is func(pid int) bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !is(pid) {
		return false
	}
	bundle, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	container := argAfter(arguments(pid), "-id")
	children := childrenOf(pid)
	endProcess(fd)
	for _, child := range children {
		endProcess(child)
		_ = unix.Close(child)
	}
	if container != "" && filepath.Base(bundle) == container {
		_ = mount.UnmountAll(filepath.Join(bundle, "rootfs"), unix.MNT_DETACH) // the root file system may not be mounted
	}
	return true
}

// childrenOf returns pidfds of a process's children. The caller must close the pidfds.
func childrenOf(pid int) (pidfds []int) {
	lists, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended in the meantime
		for child := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			if fd, err := unix.PidfdOpen(n, 0); err == nil {
				pidfds = append(pidfds, fd)
			}
		}
	}
	return pidfds
}

// endProcess terminates a process with SIGTERM, and with SIGKILL if it does not exit.
func endProcess(pidfd int) {
	for _, s := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, time.Second}, {unix.SIGKILL, killGrace}} {
		if unix.PidfdSendSignal(pidfd, s.signal, nil, 0) != nil {
			return
		}
		ready := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(ready, int(s.wait.Milliseconds())); n > 0 {
			return
		}
	}
}
