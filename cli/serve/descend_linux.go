package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose own parent
// exits, so that killDescendants can find it.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // supported since Linux 3.4
}

// inUse reports whether the command line of any process contains dir, which is a cluster's directory.
func inUse(dir string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	return slices.ContainsFunc(lines, func(path string) bool {
		line, _ := os.ReadFile(path) // the process may have exited
		return bytes.Contains(line, []byte(dir))
	})
}

// descendantsInterval is the interval between checks for remaining processes.
const descendantsInterval = 2 * time.Millisecond

// killDescendants terminates all descendants of this process. Until grace has passed, it sends them SIGTERM, so that
// supervisors can clean up their machines. It then sends SIGKILL until no process is left, for at most killTimeout. It
// returns the number of remaining processes. It must not be called while another goroutine waits for a child.
func killDescendants(grace, killTimeout time.Duration) int {
	began := time.Now()
	terminated := map[int]bool{}
	for {
		left := descendants(os.Getpid())
		if len(left) == 0 || time.Since(began) > grace+killTimeout {
			return len(left)
		}
		for _, pid := range left {
			switch {
			case time.Since(began) > grace:
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
			case !terminated[pid]:
				terminated[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM) // the process may have exited
			}
		}
		for _, pid := range left {
			// A process can wait only for its children. Other descendants become children of this process when their
			// parents exit.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		time.Sleep(descendantsInterval)
	}
}

// descendants returns the children of a process, their children, and so on.
func descendants(of int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		out = append(out, pid)
		next = append(next[1:], children[pid]...)
	}
	return out
}

// parentOf returns a process's parent, the fourth field of /proc/PID/stat. The second
// field is the program's name in parentheses and may contain any character, so fields
// are counted from the last closing parenthesis.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	if i < 0 || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
