package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestRemoveSoonFromAllHierarchies removes a group that no longer exists in the memory hierarchy
// but is still in use in another hierarchy.
func TestRemoveSoonFromAllHierarchies(t *testing.T) {
	const pids = "/sys/fs/cgroup/pids" // groups of the pids controller need no settings, unlike those of cpuset
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil || os.Geteuid() != 0 {
		t.Skip("requires root and the hierarchies of cgroup v1")
	}
	path := fmt.Sprintf("/bourse-test-%d", os.Getpid())
	dir := filepath.Join(pids, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("requires the pids controller of cgroup v1: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	c := exec.CommandContext(t.Context(), "sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	var g Tree
	if g.Remove(path) {
		t.Error("a group in use was reported as removed")
	}
	removed := make(chan struct{})
	go func() { g.RemoveSoon(path); close(removed) }()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its error reports the signal
	<-removed
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group was not removed: %v", err)
	}
}
