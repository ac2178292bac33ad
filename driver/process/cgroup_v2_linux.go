package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// v2Groups makes groups in the unified hierarchy, where a child can be cloned
// straight into its cgroup.
type v2Groups struct {
	dir         string // <root>/bourse/<mark>
	controllers []string
	count       atomic.Int64
}

// v2Self is the cgroup that the supervisor moves to, so that what stops the
// daemon's own (a service manager) does not end it.
const v2Self = "supervisor"

func openV2(root, mark string, log *slog.Logger) (*v2Groups, error) {
	g := &v2Groups{dir: filepath.Join(root, cgroupParent, mark)}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{root, filepath.Dir(g.dir), g.dir} {
		for _, name := range cgroup.Limiting {
			// One that is missing must not cost us the others.
			_ = writeCgroup(dir, "cgroup.subtree_control", "+"+name)
		}
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.subtree_control"))
	if err != nil {
		return nil, err
	}
	g.controllers = strings.Fields(string(b))
	if err := os.Mkdir(filepath.Join(g.dir, v2Self), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := g.sweep(); err != nil {
		log.Warn("cgroups of an earlier supervisor remain", "err", err)
	}
	return g, writeCgroup(filepath.Join(g.dir, v2Self), "cgroup.procs", strconv.Itoa(os.Getpid()))
}

func (g *v2Groups) has(controller string) bool { return slices.Contains(g.controllers, controller) }

func (g *v2Groups) labels() map[string]string {
	out := cgroup.Labels("v2", g.has)
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	return out
}

// bursts tells whether unused processor time can be saved up, as since Linux
// 5.14.
func (g *v2Groups) bursts() bool { return g.has("cpu") && exists(g.dir, "cpu.max.burst") }

// lend has nothing to lend: a child is born in any group at once.
func (*v2Groups) lend(func(group)) bool { return false }

func (*v2Groups) stands() bool { return false }

func (g *v2Groups) fork(in group, l driver.Limits, forkExec forkFunc) (int, group, error) {
	own, given := in.(*v2Group)
	if !given {
		own = &v2Group{all: g, dir: filepath.Join(g.dir, "t"+strconv.FormatInt(g.count.Add(1), 10))}
		if err := os.Mkdir(own.dir, 0o755); err != nil {
			return 0, nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	pid, err := 0, error(nil)
	if !given {
		err = own.bound(l)
	}
	if err == nil {
		pid, err = own.fork(forkExec)
	}
	if err != nil && !given {
		return 0, nil, errors.Join(err, removeCgroup(own.dir))
	}
	return pid, own, err
}

// sweep kills and removes what an earlier supervisor has left.
func (g *v2Groups) sweep() error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		if e.IsDir() && e.Name() != v2Self {
			old := &v2Group{all: g, dir: filepath.Join(g.dir, e.Name())}
			old.killAll(killGrace)
			all = errors.Join(all, old.remove())
		}
	}
	return all
}

func (g *v2Groups) close() {
	root := filepath.Dir(filepath.Dir(g.dir))
	_ = writeCgroup(root, "cgroup.procs", strconv.Itoa(os.Getpid()))
	_ = syscall.Rmdir(filepath.Join(g.dir, v2Self))
	_ = syscall.Rmdir(g.dir)
	_ = syscall.Rmdir(filepath.Dir(g.dir)) // fails while another driver has something in it
}

type v2Group struct {
	all *v2Groups
	dir string
}

func (g *v2Group) fork(forkExec forkFunc) (int, error) {
	d, err := os.Open(g.dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return forkExec(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())})
}

// bound bounds the number of processes and the memory before there is a
// process: a program that forks or fills the memory at once is held, too.
func (g *v2Group) bound(l driver.Limits) error {
	var all error
	if l.PIDs > 0 && g.all.has("pids") {
		all = writeCgroup(g.dir, "pids.max", strconv.Itoa(l.PIDs))
	}
	if l.Memory > 0 && g.all.has("memory") {
		all = errors.Join(all, writeCgroup(g.dir, "memory.max", boundOf(l)))
	}
	return all
}

func (g *v2Group) limit(l driver.Limits) error {
	var all error
	set := func(controller, file, value string, wanted bool) {
		if wanted && g.all.has(controller) {
			all = errors.Join(all, writeCgroup(g.dir, file, value))
		}
	}
	memory := strconv.FormatInt(int64(l.Memory)<<20, 10)
	cpu := cgroup.CPUOf(l)
	set("cpu", "cpu.weight", strconv.FormatInt(cgroup.Weight(l), 10), l.CPUWeight > 0)
	set("cpu", "cpu.max", fmt.Sprintf("%d %d", cpu.Quota, cpu.Period), l.CPUQuota > 0)
	set("cpu", "cpu.max.burst", strconv.FormatInt(cpu.Burst, 10), l.CPUQuota > 0 && cpu.Burst > 0 && g.all.bursts())
	set("memory", "memory.max", memory, l.Memory > 0)
	if l.Memory > 0 && g.all.has("memory") {
		_ = writeCgroup(g.dir, "memory.swap.max", "0") // missing where swap is not accounted
	}
	return all
}

func (g *v2Group) killAll(grace time.Duration) {
	_ = writeCgroup(g.dir, "cgroup.kill", "1") // since Linux 5.14; what follows does it too
	killMembers(g.dir, grace)
}

func (g *v2Group) oomKilled() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	return err == nil && cgroup.Counter(string(b), "oom_kill") > 0
}

func (g *v2Group) usage() driver.Usage {
	return cgroup.UsageV2(func(name string) string { return readCgroup(g.dir, name) })
}

func (g *v2Group) members() []int {
	pids, _ := members(g.dir) // gone: none
	return pids
}

func (g *v2Group) remove() error { return removeCgroup(g.dir) }
