package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// v1Group is one task's cgroups: one of the same name in every hierarchy, of
// which its processes are in the needed ones.
type v1Group struct {
	all   *v1Groups
	name  string
	trees []hierarchy // that the task is in
	lent  bool        // a thread stands in it, and no task yet
}

func (g *v1Group) dir(h hierarchy) string { return filepath.Join(h.dir, g.name) }

// enter moves the calling thread into the group, but for the processor's part:
// see join.
func (g *v1Group) enter() error {
	for _, h := range g.trees {
		if h.late() {
			continue
		}
		if err := writeCgroup(g.dir(h), "tasks", "0"); err != nil { // 0: the writer
			return err
		}
	}
	return nil
}

// leave moves the calling thread back to where the supervisor is.
func (g *v1Group) leave() error {
	for _, h := range g.trees {
		if h.late() {
			continue
		}
		if _, err := syscall.Write(h.back, []byte("0")); err != nil {
			return err
		}
	}
	return nil
}

// join moves the task's processes to where the forking thread has not been: a
// thread in a new cpu cgroup that wakes beside its child waits for it too
// long.
func (g *v1Group) join() error {
	var all error
	for _, h := range g.trees {
		if !h.late() {
			continue
		}
		pids, err := members(g.dir(g.trees[0]))
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := writeCgroup(g.dir(h), "cgroup.procs", strconv.Itoa(pid)); !errors.Is(err, syscall.ESRCH) { // it may be gone again
				all = errors.Join(all, err)
			}
		}
	}
	return all
}

// bound bounds the number of processes and the memory before there is a
// process: a program that forks or fills the memory at once is held, too. The
// forking thread counts while it is here, and what it takes.
func (g *v1Group) bound(l driver.Limits) error {
	var all error
	for _, h := range g.trees {
		if l.PIDs > 0 && h.has("pids") {
			all = errors.Join(all, writeCgroup(g.dir(h), "pids.max", strconv.Itoa(max(2, l.PIDs))))
		}
		if l.Memory > 0 && h.has("memory") {
			all = errors.Join(all, writeCgroup(g.dir(h), "memory.limit_in_bytes", boundOf(l)))
		}
	}
	return all
}

func (g *v1Group) limit(l driver.Limits) error {
	var all error
	set := func(controller, file string, value int64, wanted bool) {
		for _, h := range g.trees {
			if wanted && h.has(controller) {
				all = errors.Join(all, writeCgroup(g.dir(h), file, strconv.FormatInt(value, 10)))
			}
		}
	}
	// Memory first: what a program takes in its first moments counts.
	set("memory", "memory.limit_in_bytes", int64(l.Memory)<<20, l.Memory > 0)
	if h := g.all.trees[0]; all == nil && l.Memory > 0 && h.has("memory") {
		// Memory and swap together; missing where swap is not accounted.
		_ = writeCgroup(g.dir(h), "memory.memsw.limit_in_bytes", strconv.FormatInt(int64(l.Memory)<<20, 10))
	}
	set("pids", "pids.max", int64(l.PIDs), l.PIDs > 0)
	cpu := cgroup.CPUOf(l)
	set("cpu", "cpu.shares", cgroup.Shares(l), l.CPUWeight > 0)
	set("cpu", "cpu.cfs_period_us", cpu.Period, l.CPUQuota > 0 && l.CPUPeriod > 0)
	set("cpu", "cpu.cfs_quota_us", cpu.Quota, l.CPUQuota > 0)
	set("cpu", "cpu.cfs_burst_us", cpu.Burst, l.CPUQuota > 0 && cpu.Burst > 0 && g.all.bursts())
	return errors.Join(all, g.join())
}

func (g *v1Group) killAll(grace time.Duration) {
	// A process is in all of the task's cgroups: one is enough.
	killMembers(g.dir(g.trees[0]), grace)
}

func (g *v1Group) oomKilled() bool {
	if !g.trees[0].has("memory") {
		return false
	}
	b, err := os.ReadFile(filepath.Join(g.dir(g.trees[0]), "memory.oom_control"))
	return err == nil && cgroup.Counter(string(b), "oom_kill") > 0
}

// usage reads the hierarchies that the task is in. The processor's account is
// there when cpuacct is mounted together with cpu.
func (g *v1Group) usage() driver.Usage {
	return cgroup.UsageV1(func(controller, name string) string {
		if controller == "cpuacct" {
			controller = "cpu"
		}
		for _, h := range g.trees {
			if h.has(controller) {
				return readCgroup(g.dir(h), name)
			}
		}
		return ""
	})
}

func (g *v1Group) members() []int {
	pids, _ := members(g.dir(g.trees[0])) // gone: none
	return pids
}

func (g *v1Group) remove() error {
	var all error
	for _, h := range g.all.trees {
		all = errors.Join(all, removeCgroup(g.dir(h)))
	}
	return all
}
