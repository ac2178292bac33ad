package main

import (
	"os"
	"syscall"
)

// startInGroup starts the sleeper in a cgroup v2 group.
func startInGroup(group string, attr *syscall.ProcAttr) (pid int, err error) {
	dir, err := os.Open(group)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
	return syscall.ForkExec(sleeper[0], sleeper, attr)
}
