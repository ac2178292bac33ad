package container

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// Labels of the driver's objects in containerd. There is no label for the task, because the container's id
// identifies it.
const (
	labelMark   = "bourse.dev/mark"   // the driver's mark, also on snapshots
	labelTTY    = "bourse.dev/tty"    // "1": the output is one stream
	labelSignal = "bourse.dev/signal" // the image's stop signal
	labelVM     = "bourse.dev/vm"     // "1": a virtual machine
	labelExit   = "bourse.dev/exit"   // the exit as JSON; the task may be deleted once it is set
)

func labelsOf(mark string, t *task) map[string]string {
	out := map[string]string{labelMark: mark}
	if t.tty {
		out[labelTTY] = "1"
	}
	if t.vm {
		out[labelVM] = "1"
	}
	if t.signal != "" {
		out[labelSignal] = string(t.signal)
	}
	return out
}

// exitLabel encodes an exit as a label's value. containerd limits labels to 4096 bytes.
func exitLabel(exit bourse.Exit) (string, error) {
	const most = 2048
	if len(exit.Error) > most {
		exit.Error = strings.ToValidUTF8(exit.Error[:most], "")
	}
	b, err := json.Marshal(exit)
	return string(b), err
}

// exitOf decodes the exit that is stored in the labels of a container's record. It returns nil if no valid exit is
// stored.
func exitOf(r containers.Container) *bourse.Exit {
	text, ok := r.Labels[labelExit]
	var exit bourse.Exit
	if !ok || json.Unmarshal([]byte(text), &exit) != nil {
		return nil
	}
	return &exit
}

// runtimeName is the pattern for valid runtime names. It excludes paths, because containerd would execute a program
// at any path on the host as a runtime.
var runtimeName = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)

// runtimeOf returns containerd's name for the runtime that an order requests. The order may use the short name, for
// example "runsc" for io.containerd.runsc.v1. shims maps the short names of the installed runtimes to containerd's
// names.
func runtimeOf(name string, shims map[string]string) (string, error) {
	if !runtimeName.MatchString(name) {
		return "", bourse.Errorf(bourse.CodeInvalid, "runtime %s: use a name such as io.containerd.runc.v2", bourse.Quoted(name))
	}
	if long, ok := shims[name]; ok {
		return long, nil
	}
	if !strings.Contains(name, ".") {
		return "", bourse.Errorf(bourse.CodeInvalid, "runtime %s not found on this host", bourse.Quoted(name))
	}
	return name, nil
}

// shimsIn finds the runtimes that are installed in the directories listed in path, which has the form of $PATH. It
// returns a map from the runtimes' short names to containerd's names.
func shimsIn(path string) map[string]string {
	out := map[string]string{}
	for _, dir := range filepath.SplitList(path) {
		found, _ := filepath.Glob(filepath.Join(dir, "containerd-shim-*-v*"))
		for _, file := range found {
			name := strings.TrimPrefix(filepath.Base(file), "containerd-shim-")
			i := strings.LastIndexByte(name, '-')
			long := "io.containerd." + name[:i] + "." + name[i+1:]
			if short := name[:i]; runtimeName.MatchString(long) && out[short] < long { // keep the newest version
				out[short] = long
			}
		}
	}
	return out
}

// driverLabels returns this driver's labels: the enforceable limits, support for virtual machines, the default runtime,
// and one label for each runtime in shims.
func (d *Driver) driverLabels(shims map[string]string) map[string]string {
	out := d.groups.Labels()
	out["container"] = "containerd"
	out[driver.LabelDefaultRuntime] = d.cfg.Runtime
	if d.cfg.VM != nil {
		maps.Copy(out, d.cfg.VM.Labels())
	}
	for short, long := range shims {
		out["runtime."+short] = long
	}
	return out
}

// HostLabels returns labels such as "limit.memory" for the limits that this host can enforce on
// containers, and the host's cgroup version as "cgroup". It has no side effects.
func HostLabels() map[string]string { return new(cgroup.Tree).Labels() }

func hostShims() map[string]string { return shimsIn(os.Getenv("PATH")) }
