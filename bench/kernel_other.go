//go:build !linux

package main

import "syscall"

// bornIn starts the sleeper: there are no cgroups.
func bornIn(_ string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(sleeper[0], sleeper, attr)
}
