package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// v1Groups creates groups in the v1 hierarchies.
type v1Groups struct {
	mode       string
	trees      []hierarchy // the memory controller's hierarchy first, if it exists
	freezerDir string      // <mount>/bourse/<mark> in the freezer's hierarchy, or ""; contains groups that have been frozen
	count      atomic.Int64
}

// hierarchy is a v1 mount with one or more controllers.
type hierarchy struct {
	controllers []string
	dir         string // <mount>/bourse/<mark>
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

func openV1(choice Choice, mark string, log *slog.Logger) (*v1Groups, error) {
	g := &v1Groups{mode: choice.Mode}
	var refused error
	for _, controller := range limiting {
		mount := choice.V1[controller]
		if mount == "" {
			continue
		}
		dir := filepath.Join(mount, Parent, mark)
		if i := slices.IndexFunc(g.trees, func(h hierarchy) bool { return h.dir == dir }); i >= 0 {
			g.trees[i].controllers = append(g.trees[i].controllers, controller)
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			refused = errors.Join(refused, err) // other controllers may work
			continue
		}
		g.trees = append(g.trees, hierarchy{controllers: []string{controller}, dir: dir})
	}
	if len(g.trees) == 0 {
		return nil, refused
	}
	g.openFreezer(choice.V1["freezer"], mark, log) // must be first, because killed processes do not exit while they are frozen
	for _, h := range g.trees {
		if err := sweep(h.dir, ""); err != nil {
			log.Warn("cgroups of an earlier supervisor remain", "err", err)
		}
	}
	if err := g.probe(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// probe returns an error unless threads of this process can enter a group.
func (g *v1Groups) probe() error {
	own, err := g.make()
	if err != nil {
		return err
	}
	OnOwnThread(func() { err = own.enter() })
	return errors.Join(err, own.Remove())
}

// ByThread implements Groups.
func (*v1Groups) ByThread() bool { return true }

// Labels implements Groups.
func (g *v1Groups) Labels() map[string]string {
	out := labels(g.mode, func(c string) bool {
		return slices.ContainsFunc(g.trees, func(h hierarchy) bool { return h.has(c) })
	})
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	if g.freezerDir != "" {
		out[LabelSuspend] = "freezer"
	}
	return out
}

// bursts reports whether unused processor time may accumulate, which requires Linux 5.14.
func (g *v1Groups) bursts() bool {
	return slices.ContainsFunc(g.trees, func(h hierarchy) bool { return h.has("cpu") && exists(h.dir, "cpu.cfs_burst_us") })
}

// New implements Groups.
func (g *v1Groups) New(l driver.Limits) (Group, error) {
	own, err := g.make()
	if err != nil {
		return nil, err
	}
	if err := own.limit(l); err != nil {
		return nil, errors.Join(err, own.Remove())
	}
	return own, nil
}

// make creates a new group's cgroups. It skips names that are taken by cgroups that an earlier
// process left behind.
func (g *v1Groups) make() (*v1Group, error) {
	for {
		own := &v1Group{all: g, name: "t" + strconv.FormatInt(g.count.Add(1), 10)}
		var err error
		for _, h := range g.trees {
			if err = syscall.Mkdir(own.dir(h), 0o755); err != nil {
				break
			}
		}
		if err == nil {
			return own, nil
		}
		err = errors.Join(fmt.Errorf("make cgroup %s: %w", own.name, err), own.Remove())
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// Close implements Groups.
func (g *v1Groups) Close() {
	dirs := []string{g.freezerDir}
	for _, h := range g.trees {
		dirs = append(dirs, h.dir)
	}
	for _, dir := range dirs {
		if dir != "" {
			_ = removeDir(dir)
			_ = syscall.Rmdir(filepath.Dir(dir)) // fails if another driver has cgroups there
		}
	}
}

// v1Group is the set of a task's cgroups: one in each hierarchy, all with the same name.
type v1Group struct {
	all  *v1Groups
	name string
}

func (g *v1Group) dir(h hierarchy) string { return filepath.Join(h.dir, g.name) }

// limit sets the group's limits. The group must still be empty. The process limit is at least 2,
// because a thread of this process enters the group to fork the task, and counts as well.
func (g *v1Group) limit(l driver.Limits) error {
	var all error
	set := func(controller, file string, value int64, wanted bool) {
		for _, h := range g.all.trees {
			if wanted && h.has(controller) {
				all = errors.Join(all, writeFile(g.dir(h), file, strconv.FormatInt(value, 10)))
			}
		}
	}
	memory, cpu := memoryOf(l), CPUOf(l)
	set("memory", "memory.limit_in_bytes", memory, memory > 0)
	if h := g.all.trees[0]; memory > 0 && h.has("memory") {
		// The combined limit on memory and swap. The file is missing if swap accounting is
		// disabled.
		_ = writeFile(g.dir(h), "memory.memsw.limit_in_bytes", strconv.FormatInt(memory, 10))
	}
	set("pids", "pids.max", int64(max(2, l.PIDs)), l.PIDs > 0)
	set("cpu", "cpu.shares", shares(l), l.CPUWeight > 0)
	set("cpu", "cpu.cfs_period_us", cpu.Period, l.CPUQuota > 0 && l.CPUPeriod > 0)
	set("cpu", "cpu.cfs_quota_us", cpu.Quota, l.CPUQuota > 0)
	set("cpu", "cpu.cfs_burst_us", cpu.Burst, l.CPUQuota > 0 && cpu.Burst > 0 && g.all.bursts())
	return all
}

// Fork implements Group. It moves the calling thread into the group, which takes 10 to 20 ms on an
// idle host, because the kernel first waits for a grace period on all processors.
//
// The calling thread must not be this process's main thread. If the main thread were in the group,
// the kernel could kill this process when the group runs out of memory. The kernel does not kill a
// child between vfork and exec.
func (g *v1Group) Fork(fork ForkFunc) (int, error) {
	if err := g.enter(); err != nil {
		return 0, bourse.Errorf(bourse.CodeUnavailable, "the task's cgroup cannot be entered: %w", err)
	}
	return fork(&syscall.SysProcAttr{})
}

// enter moves the calling thread into the group. The thread stays there until it exits.
func (g *v1Group) enter() error {
	for _, h := range g.all.trees {
		if err := writeFile(g.dir(h), "tasks", "0"); err != nil { // 0 means the thread that writes
			return err
		}
	}
	return nil
}

// KillAll implements Group. It reads the process list of only one of the group's cgroups, because
// each process is in all of them.
func (g *v1Group) KillAll(grace time.Duration) {
	if g.mayBeFrozen() {
		killMembers(g.freezerPath(), grace)
	}
	killMembers(g.dir(g.all.trees[0]), grace)
}

// OOMKilled implements Group.
func (g *v1Group) OOMKilled() bool {
	h := g.all.trees[0]
	return h.has("memory") && counter(readFile(g.dir(h), "memory.oom_control"), "oom_kill") > 0
}

// Usage implements Group. Processor time is measured only if cpuacct is mounted together with
// cpu.
func (g *v1Group) Usage() driver.Usage {
	return usageV1(func(controller, name string) string {
		if controller == "cpuacct" {
			controller = "cpu"
		}
		for _, h := range g.all.trees {
			if h.has(controller) {
				return readFile(g.dir(h), name)
			}
		}
		return ""
	})
}

// Members implements Group.
func (g *v1Group) Members() []int {
	pids, _ := members(g.dir(g.all.trees[0])) // none if the cgroup no longer exists
	return pids
}

// Remove implements Group.
func (g *v1Group) Remove() error {
	var all error
	for _, h := range g.all.trees {
		all = errors.Join(all, removeDir(g.dir(h)))
	}
	if g.mayBeFrozen() {
		all = errors.Join(all, removeDir(g.freezerPath()))
	}
	return all
}
