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

// adoptOrphans makes this process the parent of every descendant whose own
// parent dies, so that killDescendants finds it.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // kernels since 3.4 have it
}

// inUse reports whether a process has been told of a cluster's directory.
func inUse(dir string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	return slices.ContainsFunc(lines, func(path string) bool {
		line, _ := os.ReadFile(path) // it may have ended
		return bytes.Contains(line, []byte(dir))
	})
}

// descendantsStep is how long a killed process gets to disappear before the
// next look.
const descendantsStep = 2 * time.Millisecond

// killDescendants ends whatever this process has started, and what that has
// started: for as long as grace with SIGTERM, at which supervisors clean up
// behind their machines, then with SIGKILL until nothing is left or patience
// is at its end. It returns the number of processes left. It must be called when
// nothing waits for a child.
func killDescendants(grace, patience time.Duration) int {
	began := time.Now()
	asked := map[int]bool{}
	for {
		left := descendants(os.Getpid())
		if len(left) == 0 || time.Since(began) > grace+patience {
			return len(left)
		}
		for _, pid := range left {
			switch {
			case time.Since(began) > grace:
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			case !asked[pid]:
				asked[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM) // the same
			}
		}
		for _, pid := range left {
			// Only our own children can be waited for; the others become ours
			// as their parents die.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		time.Sleep(descendantsStep)
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

// parentOf reads the fourth field of /proc/PID/stat. The second, the
// program's name, may hold anything, so fields are counted from its closing
// parenthesis.
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
