package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Labels of what is the driver's in containerd. Which task a container is of
// is in its id.
const (
	labelMark   = "bourse.dev/mark"   // the driver's, also of snapshots
	labelTTY    = "bourse.dev/tty"    // "1": its output is one stream
	labelSignal = "bourse.dev/signal" // that the image wants to be stopped with
	labelExit   = "bourse.dev/exit"   // how it ended, JSON; the task may be deleted once it is there
)

func labelsOf(mark string, task driver.Task, stop bourse.Signal) map[string]string {
	out := map[string]string{labelMark: mark}
	if task.TTY {
		out[labelTTY] = "1"
	}
	if stop != "" {
		out[labelSignal] = string(stop)
	}
	return out
}

// exitLabel writes an exit; containerd takes labels of 4096 bytes.
func exitLabel(exit bourse.Exit) (string, error) {
	const most = 2048
	if len(exit.Error) > most {
		exit.Error = strings.ToValidUTF8(exit.Error[:most], "")
	}
	b, err := json.Marshal(exit)
	return string(b), err
}

// exitOf reads it, nil when there is none.
func exitOf(r containers.Container) *bourse.Exit {
	text, ok := r.Labels[labelExit]
	var exit bourse.Exit
	if !ok || json.Unmarshal([]byte(text), &exit) != nil {
		return nil
	}
	return &exit
}

// runtimeName is the shape of a runtime's name: containerd would also take the
// path of any program of the host.
var runtimeName = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)

// runtimeOf returns containerd's name of a runtime: "runsc" is short for
// io.containerd.runsc.v1, by the shims that are installed.
func runtimeOf(name, usual string, shims map[string]string) (string, error) {
	if name == "" {
		name = usual
	}
	if !runtimeName.MatchString(name) {
		return "", bourse.Errorf(bourse.CodeInvalid, "runtime %s: use a name such as io.containerd.runc.v2", bourse.Quoted(name))
	}
	if long, ok := shims[name]; ok {
		return long, nil
	}
	if !strings.Contains(name, ".") {
		return "", bourse.Errorf(bourse.CodeInvalid, "runtime %s is not on this host", bourse.Quoted(name))
	}
	return name, nil
}

// shimsIn finds the runtimes whose shims are in the directories of a PATH:
// containerd's names by their short ones.
func shimsIn(path string) map[string]string {
	out := map[string]string{}
	for _, dir := range filepath.SplitList(path) {
		found, _ := filepath.Glob(filepath.Join(dir, "containerd-shim-*-v*"))
		for _, file := range found {
			name := strings.TrimPrefix(filepath.Base(file), "containerd-shim-")
			i := strings.LastIndexByte(name, '-')
			long := "io.containerd." + name[:i] + "." + name[i+1:]
			if short := name[:i]; runtimeName.MatchString(long) && out[short] < long { // the newest version
				out[short] = long
			}
		}
	}
	return out
}

// factsOf are the driver's labels.
func (d *Driver) factsOf(shims map[string]string) map[string]string {
	out := d.groups.Labels()
	out["container"] = "containerd"
	for short, long := range shims {
		out["runtime."+short] = long
	}
	return out
}

func hostShims() map[string]string { return shimsIn(os.Getenv("PATH")) }
