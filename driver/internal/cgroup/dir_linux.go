package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// members returns the ids of the processes in a cgroup. It omits this process, which may
// temporarily have a thread in a v1 cgroup.
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

// killMembers kills the processes in a cgroup until none remains or grace has passed. It tries
// repeatedly, because processes may fork while they are being killed, or hang in the kernel. In v1,
// it also thaws the cgroup, because a frozen process that has been killed does not die until it is
// thawed. It then dies without executing another instruction.
func killMembers(dir string, grace time.Duration) {
	_ = writeFile(dir, "cgroup.kill", "1") // v2 only, since Linux 5.14; otherwise, the loop below suffices
	freezer := exists(dir, freezerState)
	deadline := time.Now().Add(grace)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids, err := members(dir)
		if err != nil || len(pids) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}
		if freezer {
			_ = writeFile(dir, freezerState, "THAWED")
		}
		time.Sleep(pause)
	}
}

// removeDir removes a cgroup. It retries for about a second, because the kernel may not release the
// cgroup until some time after its last process has ended. A thread of this process that forked in
// the cgroup may also take a moment to exit.
func removeDir(dir string) error {
	var err error
	for pause := 100 * time.Microsecond; pause < time.Second; pause *= 2 {
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

// sweep kills the processes in all child cgroups of dir and removes these cgroups. except is the
// name of a child to skip, or "".
func sweep(dir, except string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		if e.IsDir() && e.Name() != except {
			child := filepath.Join(dir, e.Name())
			killMembers(child, sweepGrace)
			all = errors.Join(all, removeDir(child))
		}
	}
	return all
}

// writeFile writes to one of a cgroup's files. It retries after EINTR: the kernel may refuse to
// change a memory limit while a signal is pending, and Go's runtime often sends signals to its own
// threads.
func writeFile(dir, file, value string) error {
	fd, err := syscall.Open(filepath.Join(dir, file), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir, file), Err: err}
	}
	defer syscall.Close(fd)
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		_, err = syscall.Write(fd, []byte(value))
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err}
	}
	return nil
}
