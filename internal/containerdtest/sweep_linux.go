package containerdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent makes the kernel kill a child when its parent exits.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// sweep kills the shims of a stopped server and their children, and removes the server's mounts.
// It returns a list of what it found.
func sweep(s *Server) []string {
	var left []string
	for _, pid := range s.Shims() {
		left = append(left, fmt.Sprintf("shim %d was still running", pid))
		// Kill the children first: once their shim is gone, they cannot be traced to this server.
		for _, child := range append(children(pid), pid) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
	mounts := s.Mounts()
	slices.Reverse(mounts) // unmount in the reverse order of mounting
	for _, path := range mounts {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			left = append(left, fmt.Sprintf("mount %s: %v", path, err))
		}
	}
	return left
}

// children returns a process's children. For a shim, these are the containers' init
// processes.
func children(pid int) []int {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var out []int
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}
