package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// v1Groups makes groups in the hierarchies of single controllers. There a
// child is born in the cgroups of the thread that forks it.
type v1Groups struct {
	mode    string
	trees   []hierarchy // that of memory first, when there is one
	count   atomic.Int64
	spare   chan *v1Group // made ahead; closed by the one who makes them
	used    chan struct{} // a spare is to be made for each
	slots   chan struct{} // bounds the threads that are in groups
	closing chan struct{}

	ready    chan func(*v1Group) // taken by threads that stand in a new group
	standing sync.WaitGroup      // of them
}

// hierarchy is one v1 mount, of one or several controllers.
type hierarchy struct {
	controllers []string
	dir         string // <mount>/bourse/<mark>
	back        int    // the tasks file of the supervisor's own cgroup, opened
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// late tells whether children are moved to the hierarchy after their birth.
func (h hierarchy) late() bool { return len(h.controllers) == 1 && h.has("cpu") }

func openV1(choice cgroup.Choice, own map[string]string, mark string, log *slog.Logger) (*v1Groups, error) {
	g := &v1Groups{
		mode: choice.Mode, slots: make(chan struct{}, forksAtOnce), closing: make(chan struct{}),
		spare: make(chan *v1Group, spares), used: make(chan struct{}, spares),
		ready: make(chan func(*v1Group)),
	}
	var refused error
	for _, controller := range cgroup.Limiting {
		mount := choice.V1[controller]
		if mount == "" {
			continue
		}
		dir := filepath.Join(mount, cgroupParent, mark)
		if i := slices.IndexFunc(g.trees, func(h hierarchy) bool { return h.dir == dir }); i >= 0 {
			g.trees[i].controllers = append(g.trees[i].controllers, controller)
			continue
		}
		tree, err := openHierarchy(dir, mount, own[controller])
		if err != nil {
			refused = errors.Join(refused, err) // the others may still do
			continue
		}
		tree.controllers = []string{controller}
		g.trees = append(g.trees, tree)
	}
	if len(g.trees) == 0 {
		return nil, refused
	}
	if err := g.sweep(); err != nil {
		log.Warn("cgroups of an earlier supervisor remain", "err", err)
	}
	if err := g.probe(); err != nil {
		g.removeParents()
		return nil, err
	}
	go g.refill() // ends with close
	g.standing.Add(standers)
	for range standers {
		go g.stand() // ends with close
	}
	return g, nil
}

// openHierarchy makes the directory of our groups and finds the way back.
func openHierarchy(dir, mount, own string) (hierarchy, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return hierarchy{}, err
	}
	back, err := syscall.Open(filepath.Join(mount, own, "tasks"), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil { // a container shows only its own part of the tree
		back, err = syscall.Open(filepath.Join(mount, "tasks"), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		return hierarchy{}, fmt.Errorf("open tasks of %s: %w", mount, err)
	}
	return hierarchy{dir: dir, back: back}, nil
}

// probe tries whether a thread may enter a group.
func (g *v1Groups) probe() error {
	own, err := g.make()
	if err != nil {
		return err
	}
	own.trees = g.trees
	result := make(chan error, 1)
	go func() { // locked, so that its thread ends with it
		runtime.LockOSThread()
		result <- errors.Join(own.enter(), own.leave())
	}()
	return errors.Join(<-result, own.remove())
}

func (g *v1Groups) labels() map[string]string {
	out := cgroup.Labels(g.mode, func(c string) bool {
		return slices.ContainsFunc(g.trees, func(h hierarchy) bool { return h.has(c) })
	})
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	return out
}

// bursts tells whether unused processor time can be saved up, as since Linux
// 5.14.
func (g *v1Groups) bursts() bool {
	return slices.ContainsFunc(g.trees, func(h hierarchy) bool { return h.has("cpu") && exists(h.dir, "cpu.cfs_burst_us") })
}

// make makes the cgroups of a new group. Names that an earlier supervisor has
// left behind are passed over.
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
		err = errors.Join(fmt.Errorf("make cgroup %s: %w", own.name, err), own.remove())
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// sweep kills and removes what an earlier supervisor has left.
func (g *v1Groups) sweep() error {
	var all error
	for _, h := range g.trees {
		all = errors.Join(all, sweepCgroups(h.dir))
	}
	return all
}

func (g *v1Groups) close() {
	close(g.closing)
	g.standing.Wait()
	for own := range g.spare {
		if own != nil {
			_ = own.remove()
		}
	}
	g.removeParents()
}

func (g *v1Groups) removeParents() {
	for _, h := range g.trees {
		_ = removeCgroup(h.dir)
		_ = syscall.Rmdir(filepath.Dir(h.dir)) // fails while another driver has something in it
		_ = syscall.Close(h.back)
	}
}

// needed gives the hierarchies that a task with these limits has to be in:
// entering one costs. One is always needed, to know who belongs to the task.
func (g *v1Groups) needed(l driver.Limits) []hierarchy {
	out := []hierarchy{g.trees[0]}
	for _, h := range g.trees[1:] {
		if (h.has("cpu") && (l.CPUWeight > 0 || l.CPUQuota > 0)) || (h.has("pids") && l.PIDs > 0) {
			out = append(out, h)
		}
	}
	return out
}
