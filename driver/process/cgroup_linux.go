package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// cgroupParent is the cgroup under which every driver of a host has its own.
const cgroupParent = "bourse"

// forkMemory is the least memory, in MiB, that a group has while a child is
// forked into it and its program executed. A limit below it is set when the
// program runs.
const forkMemory = 16

// boundOf gives the memory in bytes that a group has when its first process is
// born.
func boundOf(l driver.Limits) string {
	return strconv.FormatInt(int64(max(forkMemory, l.Memory))<<20, 10)
}

// openGrouping finds out what the host lets us use. It never fails: what does
// not work is not used.
func openGrouping(mark string, log *slog.Logger) grouping {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Warn("cgroups cannot be used", "err", err)
		return ungrouped{}
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		log.Warn("cgroups cannot be used", "err", err)
		return ungrouped{}
	}
	own := cgroup.ParseSelf(string(self))
	choice := cgroup.Choose(cgroup.ParseMountinfo(string(mounts)))
	if len(choice.V1) > 0 {
		g, err := openV1(choice, own, mark, log)
		if err == nil {
			return g
		}
		log.Warn("cgroups cannot be used", "mode", choice.Mode, "err", err)
		return ungrouped{}
	}
	if choice.V2 == "" {
		return ungrouped{}
	}
	g, err := openV2(choice.V2, mark, log)
	if err != nil && len(own[""]) > 1 {
		g, err = openV2(filepath.Join(choice.V2, own[""]), mark, log) // a delegated subtree
	}
	if err != nil {
		log.Warn("cgroups cannot be used", "mode", choice.Mode, "err", err)
		return ungrouped{}
	}
	return g
}

// members gives the processes in a cgroup. The supervisor is not counted: one
// of its threads may be in a v1 cgroup for a moment.
func members(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var out []int
	for field := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out, nil
}

// killMembers kills the processes of a cgroup until none is left, at most
// grace: a process may fork while it is being killed, or hang in the kernel.
func killMembers(dir string, grace time.Duration) {
	deadline := time.Now().Add(grace)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids, err := members(dir)
		if err != nil || len(pids) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		time.Sleep(pause)
	}
}

// removeCgroup removes a cgroup. The kernel may need a moment after the last
// process has gone, and our own thread may be about to leave.
func removeCgroup(dir string) error {
	var err error
	for pause := 100 * time.Microsecond; pause < 200*time.Millisecond; pause *= 2 {
		err = syscall.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}

// sweepCgroups kills what runs in the children of dir and removes them.
func sweepCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		if e.IsDir() {
			child := filepath.Join(dir, e.Name())
			killMembers(child, killGrace)
			all = errors.Join(all, removeCgroup(child))
		}
	}
	return all
}

// readCgroup gives the text of a cgroup's file, "" when it is not there.
func readCgroup(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return string(b)
}

func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// writeCgroup sets a cgroup's file.
func writeCgroup(dir, file, value string) error {
	fd, err := syscall.Open(filepath.Join(dir, file), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir, file), Err: err}
	}
	defer syscall.Close(fd)
	if _, err := syscall.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err}
	}
	return nil
}
