package process

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// markedAs looks for a mark in a process's environment and returns the task that the mark names. It returns false if
// the environment does not contain a mark for this directory.
func markedAs(environ []byte, mark string) (driver.TaskID, bool) {
	prefix := []byte(markVariable + "=" + mark + "/")
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		rest, ok := bytes.CutPrefix(kv, prefix)
		if !ok {
			continue
		}
		machine, boot, ok := strings.Cut(string(rest), "/")
		n, err := strconv.Atoi(boot)
		if ok && err == nil {
			return driver.TaskID{Machine: bourse.MachineID(machine), Boot: n}, true
		}
	}
	return driver.TaskID{}, false
}

// markOf returns the task that a process belongs to, according to the mark in the process's environment. It returns
// false if the process is not marked with mark.
func markOf(pid int, mark string) (driver.TaskID, bool) {
	for deadline := time.Now().Add(execGrace); ; time.Sleep(100 * time.Microsecond) {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil { // the process has ended or belongs to another user
			return driver.TaskID{}, false
		}
		if len(environ) > 0 || !hasEnvironment(pid) || time.Now().After(deadline) {
			return markedAs(environ, mark)
		}
	}
}

// hasEnvironment reports whether a process has an environment or is about to get one. While the kernel is replacing a
// process's program, the environment appears to be empty.
func hasEnvironment(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // skip the first two fields in proc(5), because the second one may contain spaces
	if len(fields) <= statEnvEnd {
		return false
	}
	size, start, end := string(fields[statSize]), string(fields[statEnvStart]), string(fields[statEnvEnd])
	return size != "0" && (end == "0" || start != end) // a size of 0 means that the process has ended or is a kernel thread
}

// Indexes of fields in /proc/PID/stat. Index 0 is the process's state, the third field in proc(5).
const (
	statSize     = 20
	statEnvStart = 47
	statEnvEnd   = 48
)

// markedTasks finds all processes on the host that have a directory's mark, and yields each one's task. It may yield a
// task several times.
func markedTasks(mark string) iter.Seq[driver.TaskID] {
	return func(yield func(driver.TaskID) bool) {
		for _, pid := range numbers("/proc") {
			if id, ok := markOf(pid, mark); ok && !yield(id) {
				return
			}
		}
	}
}

// killMarked kills those processes in pids that have the directory's mark and belong to a task for which doomed returns
// true. It returns the number of killed processes.
func (s *supervisor) killMarked(pids []int, doomed func(driver.TaskID) bool) int {
	killed := 0
	for _, pid := range pids {
		if id, ok := markOf(pid, s.mark); ok && doomed(id) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// killLeftovers kills all processes on the host that have the directory's mark but do not belong to a running task.
// Because the processes may fork, it repeats the search until it finds none, but at most ten times.
func (s *supervisor) killLeftovers() {
	all := 0
	for range 10 {
		n := s.killMarked(numbers("/proc"), func(id driver.TaskID) bool { return !s.isRunning(id) })
		if all += n; n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if all > 0 {
		s.log.Warn("killed leftover processes of unknown tasks", "count", all)
	}
}

// killStrays kills the processes that have left a task's process group. It is used for tasks without a cgroup. It finds
// the processes among this process's children, because this process adopts orphans.
func (s *supervisor) killStrays(id driver.TaskID) {
	deadline := time.Now().Add(killGrace)
	for time.Now().Before(deadline) {
		var strays []int
		for _, pid := range ownChildren() {
			if !s.children.owns(pid) {
				strays = append(strays, pid)
			}
		}
		if s.killMarked(strays, func(of driver.TaskID) bool { return of == id }) == 0 {
			return
		}
		time.Sleep(time.Millisecond) // it takes a moment until the orphans of killed processes become children of this process
	}
}

// ownChildren returns the process ids of this process's children.
func ownChildren() []int { return childrenOf("self") }

// childrenOf returns the process ids of a process's children.
func childrenOf(pid string) []int {
	var out []int
	for _, tid := range numbers("/proc/" + pid + "/task") {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%d/children", pid, tid))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// numbers lists a directory, and returns the names that are numbers.
func numbers(dir string) []int {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			out = append(out, n)
		}
	}
	return out
}
