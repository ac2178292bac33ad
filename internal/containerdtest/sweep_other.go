//go:build !linux

package containerdtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func sweep(*Server) []string { return nil }
