package container

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// cgroupParent is the cgroup under which every driver of a host has its own.
const cgroupParent = "bourse"

// controllers are those that the driver reads or writes.
var controllers = []string{"memory", "cpu", "cpuacct", "pids", "blkio"}

// cgroups are the host's cgroup file systems, found when first needed. Reading
// them needs neither containerd nor a shim.
type cgroups struct {
	once sync.Once
	v1   map[string]string // mount point by controller
	v2   string            // mount point when it has the controllers
	mode string            // "v1", "v2", "hybrid" or "none"
	swap bool              // swap is accounted
}

func (g *cgroups) find() {
	g.once.Do(func() {
		text, _ := os.ReadFile("/proc/self/mountinfo") // elsewhere than on Linux there is none
		g.parse(string(text))
		switch {
		case g.v1["memory"] != "":
			g.swap = exists(filepath.Join(g.v1["memory"], "memory.memsw.limit_in_bytes"))
		case g.v2 != "":
			g.swap = true // runtimes leave it out themselves where it is missing
		}
	})
}

// parse reads mountinfo; see proc_pid_mountinfo(5). A hybrid host has its
// controllers in v1 and a v2 mount without any.
func (g *cgroups) parse(text string) {
	g.v1, g.mode = map[string]string{}, "none"
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			continue
		}
		switch point := fields[4]; rest[0] {
		case "cgroup2":
			g.v2 = cmp.Or(g.v2, point)
		case "cgroup":
			for option := range strings.SplitSeq(rest[2], ",") {
				if slices.Contains(controllers, option) {
					g.v1[option] = cmp.Or(g.v1[option], point)
				}
			}
		}
	}
	switch {
	case len(g.v1) > 0 && g.v2 != "":
		g.mode, g.v2 = "hybrid", ""
	case len(g.v1) > 0:
		g.mode = "v1"
	case g.v2 != "":
		g.mode = "v2"
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// cgroupPath is where a container's cgroup is, below each mount point.
func cgroupPath(mark, container string) string {
	return filepath.Join("/", cgroupParent, mark, container)
}

// dir gives the directory of a container's cgroup in a controller's hierarchy,
// "" when the host has none.
func (g *cgroups) dir(controller, path string) string {
	g.find()
	root := cmp.Or(g.v1[controller], g.v2)
	if root == "" {
		return ""
	}
	return filepath.Join(root, path)
}

// has tells whether the host has a controller.
func (g *cgroups) has(controller string) bool {
	g.find()
	if g.v2 == "" {
		return g.v1[controller] != ""
	}
	text, err := os.ReadFile(filepath.Join(g.v2, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// labels are the driver's labels for what the host can enforce.
func (g *cgroups) labels() map[string]string {
	g.find()
	out := map[string]string{"cgroup": g.mode}
	for _, name := range []string{"memory", "cpu", "pids"} {
		if g.has(name) {
			out["limit."+name] = "cgroup"
		}
	}
	if g.bursts() {
		out["limit.cpu.burst"] = "cgroup"
	}
	return out
}

// bursts tells whether unused processor time can be saved up, as since Linux
// 5.14. The root of v2 does not have the file, but its children.
func (g *cgroups) bursts() bool {
	found, _ := filepath.Glob(filepath.Join(cmp.Or(g.v1["cpu"], g.v2+"/*"), g.burstFile()))
	return g.has("cpu") && len(found) > 0
}

// oomKills tells how often the kernel has killed a process of the cgroup for
// memory: unlike an event, the count is still there after a restart.
func (g *cgroups) oomKills(path string) int64 {
	file := "memory.oom_control"
	if g.find(); g.v2 != "" {
		file = "memory.events"
	}
	return cgroup.Counter(read(g.dir("memory", path), file), "oom_kill")
}

// members gives the processes in a cgroup.
func (g *cgroups) members(path string) []int {
	var out []int
	for field := range strings.FieldsSeq(read(g.dir("pids", path), "cgroup.procs")) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			out = append(out, pid)
		}
	}
	return out
}

// kill kills the processes of a cgroup until none is left, at most grace: a
// process may fork while it is being killed, or hang in the kernel.
func (g *cgroups) kill(path string, grace time.Duration) {
	deadline := time.Now().Add(grace)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids := g.members(path)
		if len(pids) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		time.Sleep(pause)
	}
}

// set writes one of a cgroup's files.
func (g *cgroups) set(controller, path, file, value string) error {
	dir := g.dir(controller, path)
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

// remove removes a cgroup from all hierarchies, when it is empty.
func (g *cgroups) remove(path string) {
	g.find()
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(line, " - cgroup") {
			_ = os.Remove(filepath.Join(f[4], path)) // it may not be there
		}
	}
}

// read gives the text of a cgroup's file, "" when it is not there.
func read(dir, file string) string {
	if dir == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(dir, file))
	return string(text)
}
