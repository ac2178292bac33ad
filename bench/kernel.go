package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// kernel starts the sleeper with all that the kernel gives a machine of its own: a
// directory, and where machines have limits a group that has them.
type kernel struct{ dir, group string }

// openKernel makes the floor of what is done for a machine, in dir.
func openKernel(dir string) (*kernel, error) {
	k := &kernel{dir: filepath.Join(dir, "kernel")}
	if !onlyV1() {
		k.group = "/sys/fs/cgroup/bourse-bench"
	}
	return k, os.MkdirAll(k.dir, 0o755)
}

func (k *kernel) spawn(n int) (pid int, err error) {
	name := strconv.Itoa(n)
	attr := &syscall.ProcAttr{Dir: filepath.Join(k.dir, name), Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}}
	if err := os.Mkdir(attr.Dir, 0o755); err != nil {
		return 0, err
	}
	if k.group == "" {
		return syscall.ForkExec(sleeper[0], sleeper, attr)
	}
	group := filepath.Join(k.group, name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return 0, err
	}
	for file, value := range map[string]string{"memory.max": "16777216", "memory.swap.max": "0", "pids.max": "1000", "cpu.weight": "100"} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) { // a controller that is not enabled
			return 0, err
		}
	}
	return bornIn(group, attr)
}

// reap ends what spawn has started.
func (k *kernel) reap(n, pid int) {
	reap(pid)
	_ = os.Remove(filepath.Join(k.dir, strconv.Itoa(n)))
	if k.group != "" {
		_ = os.Remove(filepath.Join(k.group, strconv.Itoa(n)))
		_ = os.Remove(k.group) // with the last one
	}
}
