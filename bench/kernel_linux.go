package main

import (
	"os"
	"syscall"
)

// bornIn starts the sleeper in a cgroup of version 2.
func bornIn(group string, attr *syscall.ProcAttr) (pid int, err error) {
	fd, err := os.Open(group)
	if err != nil {
		return 0, err
	}
	defer fd.Close()
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(fd.Fd())
	return syscall.ForkExec(sleeper[0], sleeper, attr)
}
