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

// markedAs returns the task to which a process belongs, from the mark in its environment.
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

// markedTasks yields the task of every process on the host with a directory's mark.
func markedTasks(mark string) iter.Seq[driver.TaskID] {
	return func(yield func(driver.TaskID) bool) {
		for _, pid := range numbers("/proc") {
			environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil { // the process has ended or belongs to another user
				continue
			}
			if id, ok := markedAs(environ, mark); ok && !yield(id) {
				return
			}
		}
	}
}

// killMarked kills each of the given processes that has the directory's mark and belongs to a task
// for which doomed returns true. It returns the number of processes that it killed.
func (s *supervisor) killMarked(pids []int, doomed func(driver.TaskID) bool) int {
	killed := 0
	for _, pid := range pids {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil { // the process has ended or belongs to another user
			continue
		}
		if id, ok := markedAs(environ, s.mark); ok && doomed(id) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// killLeftovers kills every process on the host that has the directory's mark and belongs to no
// running task. It searches until it finds none, because the processes may fork.
func (s *supervisor) killLeftovers() {
	all := 0
	for range 10 {
		n := s.killMarked(numbers("/proc"), func(id driver.TaskID) bool { return !s.runs(id) })
		if all += n; n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if all > 0 {
		s.log.Warn("killed leftover processes of unknown tasks", "count", all)
	}
}

// killStrays kills the processes that a task without a group has left outside its process group.
// The task's orphans are children of this process.
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
		time.Sleep(time.Millisecond) // the orphans of killed processes become children of this process only after a moment
	}
}

// ownChildren returns this process's children.
func ownChildren() []int { return childrenOf("self") }

// childrenOf returns a process's children.
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

// numbers returns the names in a directory that are numbers.
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
