package cgroup

import (
	"context"
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
)

// v2Groups creates groups in the unified hierarchy, where the kernel can clone a child directly
// into its cgroup.
type v2Groups struct {
	dir         string // <root>/bourse/<mark>
	controllers []string
	count       atomic.Int64
}

// v2Self is the name of the cgroup to which this process moves itself. If a service manager then
// kills all processes in the daemon's cgroup, this process survives.
const v2Self = "supervisor"

func openV2(root, mark string, log *slog.Logger) (*v2Groups, error) {
	g := &v2Groups{dir: filepath.Join(root, Parent, mark)}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{root, filepath.Dir(g.dir), g.dir} {
		for _, name := range limiting {
			// Ignore errors, so that the other controllers can be used if one is missing.
			_ = writeFile(dir, "cgroup.subtree_control", "+"+name)
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
	if err := sweep(g.dir, v2Self); err != nil {
		log.Warn("cgroups of an earlier supervisor remain", "err", err)
	}
	return g, writeFile(filepath.Join(g.dir, v2Self), "cgroup.procs", strconv.Itoa(os.Getpid()))
}

func (g *v2Groups) has(controller string) bool { return slices.Contains(g.controllers, controller) }

// ByThread implements Groups.
func (*v2Groups) ByThread() bool { return false }

// Labels implements Groups.
func (g *v2Groups) Labels() map[string]string {
	out := labels("v2", g.has)
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	if exists(g.dir, freezeV2) {
		out[LabelSuspend] = "freezer"
	}
	return out
}

// bursts reports whether unused processor time may accumulate, which requires Linux 5.14.
func (g *v2Groups) bursts() bool { return g.has("cpu") && exists(g.dir, "cpu.max.burst") }

// New implements Groups.
func (g *v2Groups) New(l driver.Limits) (Group, error) {
	own := &v2Group{all: g, dir: filepath.Join(g.dir, "t"+strconv.FormatInt(g.count.Add(1), 10))}
	if err := os.Mkdir(own.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if err := own.limit(l); err != nil {
		return nil, errors.Join(err, own.Remove())
	}
	return own, nil
}

// Close implements Groups.
func (g *v2Groups) Close() {
	root := filepath.Dir(filepath.Dir(g.dir))
	_ = writeFile(root, "cgroup.procs", strconv.Itoa(os.Getpid()))
	_ = syscall.Rmdir(filepath.Join(g.dir, v2Self))
	_ = syscall.Rmdir(g.dir)
	_ = syscall.Rmdir(filepath.Dir(g.dir)) // fails if another driver has cgroups there
}

type v2Group struct {
	all *v2Groups
	dir string
}

// Fork implements Group.
func (g *v2Group) Fork(fork ForkFunc) (int, error) {
	d, err := os.Open(g.dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return fork(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())})
}

// limit sets the group's limits. The group must still be empty.
func (g *v2Group) limit(l driver.Limits) error {
	var all error
	set := func(controller, file, value string, wanted bool) {
		if wanted && g.all.has(controller) {
			all = errors.Join(all, writeFile(g.dir, file, value))
		}
	}
	memory, cpu := memoryOf(l), CPUOf(l)
	set("memory", "memory.max", strconv.FormatInt(memory, 10), memory > 0)
	if memory > 0 && g.all.has("memory") {
		_ = writeFile(g.dir, "memory.swap.max", "0") // fails if swap accounting is disabled, because the file is then missing
	}
	set("pids", "pids.max", strconv.Itoa(l.PIDs), l.PIDs > 0)
	set("cpu", "cpu.weight", strconv.FormatInt(weight(l), 10), l.CPUWeight > 0)
	set("cpu", "cpu.max", fmt.Sprintf("%d %d", cpu.Quota, cpu.Period), l.CPUQuota > 0)
	set("cpu", "cpu.max.burst", strconv.FormatInt(cpu.Burst, 10), l.CPUQuota > 0 && cpu.Burst > 0 && g.all.bursts())
	return all
}

// freezeV2 is the name of the file that freezes a group. It requires Linux 5.2.
const freezeV2 = "cgroup.freeze"

// Freeze implements Group.
func (g *v2Group) Freeze(ctx context.Context, frozen bool) error {
	if !exists(g.dir, freezeV2) {
		return errors.ErrUnsupported
	}
	if !frozen {
		return writeFile(g.dir, freezeV2, "0")
	}
	if err := writeFile(g.dir, freezeV2, "1"); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) { return counter(readFile(g.dir, "cgroup.events"), "frozen") == 1, nil })
	if err != nil {
		return errors.Join(err, writeFile(g.dir, freezeV2, "0"))
	}
	return nil
}

// KillAll implements Group. In v2, frozen processes can be killed without being resumed.
func (g *v2Group) KillAll(grace time.Duration) { killMembers(g.dir, grace) }

// OOMKilled implements Group.
func (g *v2Group) OOMKilled() bool { return counter(readFile(g.dir, "memory.events"), "oom_kill") > 0 }

// Usage implements Group.
func (g *v2Group) Usage() driver.Usage {
	return usageV2(func(name string) string { return readFile(g.dir, name) })
}

// Members implements Group.
func (g *v2Group) Members() []int {
	pids, _ := members(g.dir) // none if the cgroup no longer exists
	return pids
}

// Remove implements Group.
func (g *v2Group) Remove() error { return removeDir(g.dir) }
