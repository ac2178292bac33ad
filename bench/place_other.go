//go:build !linux

package main

import "syscall"

// startInGroup starts the sleeper without a group, because this system has no cgroups.
func startInGroup(_ string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(sleeper[0], sleeper, attr)
}
