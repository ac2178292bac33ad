package cgroup

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Tree gives access to cgroups that other programs, such as a container runtime, have created. It
// finds them in the host's cgroup file systems. A group has the same path below each mount point.
// The zero value is ready to use and finds the mounts on first use. Reading cgroups requires
// neither the runtime nor its daemon.
type Tree struct {
	once  sync.Once
	mount Choice // V2 is set only if the unified hierarchy provides the controllers
	swap  bool   // see Swap
}

func (g *Tree) find() {
	g.once.Do(func() {
		text, _ := os.ReadFile("/proc/self/mountinfo") // the file exists only on Linux
		g.parse(string(text))
		switch {
		case g.mount.V1["memory"] != "":
			g.swap = exists(g.mount.V1["memory"], "memory.memsw.limit_in_bytes")
		case g.mount.V2 != "":
			g.swap = true // runtimes omit swap limits themselves if the host does not support them
		}
	})
}

// parse selects mounts from text, the contents of a mountinfo file. On a hybrid host, it ignores
// the v2 mount, because all controllers are in v1 hierarchies.
func (g *Tree) parse(text string) {
	g.mount = Choose(ParseMountinfo(text))
	switch {
	case len(g.mount.V1) > 0:
		g.mount.V2 = ""
	case g.mount.V2 != "": // the v1 mounts, if any, have no controllers
		g.mount.Mode = "v2"
	}
}

// PathOf returns the path of a container's cgroup, relative to each mount point. If container is
// empty, it returns the path of the parent cgroup of the driver with the given mark.
func PathOf(mark, container string) string {
	return filepath.Join("/", Parent, mark, container)
}

// Swap reports whether a runtime can be given a combined limit on memory and swap. With v1, this
// requires swap accounting. With v2, it is always true, because runtimes ignore the limit if the
// host does not support it.
func (g *Tree) Swap() bool {
	g.find()
	return g.swap
}

// Dir returns the directory of a container's cgroup in a controller's hierarchy, or "" if the
// host does not have the controller.
func (g *Tree) Dir(controller, path string) string {
	g.find()
	root := cmp.Or(g.mount.V1[controller], g.mount.V2)
	if root == "" {
		return ""
	}
	return filepath.Join(root, path)
}

// Has reports whether the host has a controller.
func (g *Tree) Has(controller string) bool {
	g.find()
	if g.mount.V2 == "" {
		return g.mount.V1[controller] != ""
	}
	text, err := os.ReadFile(filepath.Join(g.mount.V2, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// Labels returns the driver's labels for the limits that the host can enforce.
func (g *Tree) Labels() map[string]string {
	g.find()
	out := labels(g.mount.Mode, g.Has)
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	if g.freezes() {
		out[LabelSuspend] = "freezer"
	}
	return out
}

// bursts reports whether unused processor time may accumulate, which requires Linux 5.14. In v2,
// bursts looks for the file cpu.max.burst in child cgroups, because the root cgroup does not have
// it.
func (g *Tree) bursts() bool {
	found, _ := filepath.Glob(filepath.Join(cmp.Or(g.mount.V1["cpu"], g.mount.V2+"/*"), g.BurstFile()))
	return g.Has("cpu") && len(found) > 0
}

// freezes reports whether groups can be frozen. In v2, freezes looks for the file cgroup.freeze in
// child cgroups, because the root cgroup does not have it.
func (g *Tree) freezes() bool {
	if g.mount.V2 == "" {
		return g.mount.V1["freezer"] != ""
	}
	found, _ := filepath.Glob(filepath.Join(g.mount.V2, "*", "cgroup.freeze"))
	return len(found) > 0
}

// OOMKills returns the number of processes in a cgroup that the kernel has killed because of the
// memory limit. Unlike the runtime's out-of-memory event, the number can still be read after the
// daemon has restarted.
func (g *Tree) OOMKills(path string) int64 {
	file := "memory.oom_control"
	if g.find(); g.mount.V2 != "" {
		file = "memory.events"
	}
	return counter(g.Read("memory", path, file), "oom_kill")
}

// Members returns the ids of the processes in a cgroup.
func (g *Tree) Members(path string) []int {
	var out []int
	for field := range strings.FieldsSeq(g.Read("pids", path, "cgroup.procs")) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			out = append(out, pid)
		}
	}
	return out
}

// Kill kills the processes in a cgroup until none remains or grace has passed. It tries repeatedly,
// because processes may fork while they are being killed, or hang in the kernel. In v1, Kill also
// thaws the cgroup, because a frozen process that has been killed dies only once it is thawed.
func (g *Tree) Kill(path string, grace time.Duration) {
	deadline := time.Now().Add(grace)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids := g.Members(path)
		if len(pids) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}
		if g.mount.V2 == "" {
			_ = g.Set("freezer", path, freezerState, "THAWED") // usually the file does not exist
		}
		time.Sleep(pause)
	}
}

// Set writes value to one of a cgroup's files. It returns errors.ErrUnsupported if the host does
// not have the controller.
func (g *Tree) Set(controller, path, file, value string) error {
	dir := g.Dir(controller, path)
	if dir == "" {
		return errors.ErrUnsupported
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Remove removes a cgroup from all hierarchies in which it is empty. It returns true if the cgroup
// then no longer exists in any hierarchy.
func (g *Tree) Remove(path string) (gone bool) {
	g.find()
	gone = true
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(line, " - cgroup") {
			if err := os.Remove(filepath.Join(f[4], path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				gone = false // the kernel still uses the cgroup in this hierarchy
			}
		}
	}
	return gone
}

// RemoveSoon is like Remove, but retries for about a second. Use it for a cgroup whose last process
// has just been killed, because the kernel may not release such a cgroup immediately.
func (g *Tree) RemoveSoon(path string) {
	for pause := time.Millisecond; pause < time.Second; pause *= 2 {
		if g.Remove(path) {
			return
		}
		time.Sleep(pause)
	}
}

// BurstFile returns the name of the file that limits how much unused processor time may accumulate.
func (g *Tree) BurstFile() string {
	if g.find(); g.mount.V2 != "" {
		return "cpu.max.burst"
	}
	return "cpu.cfs_burst_us"
}

// Usage returns the resource usage of the processes in a cgroup.
func (g *Tree) Usage(path string) driver.Usage {
	if g.find(); g.mount.V2 != "" {
		return usageV2(func(name string) string { return readFile(g.Dir("", path), name) })
	}
	return usageV1(func(controller, name string) string { return g.Read(controller, path, name) })
}

// Read returns the contents of one of a cgroup's files, or "" if the file cannot be read.
func (g *Tree) Read(controller, path, file string) string {
	dir := g.Dir(controller, path)
	if dir == "" {
		return ""
	}
	return readFile(dir, file)
}
