//go:build unix && !linux

package process

import (
	"syscall"

	"github.com/bourse-dev/bourse"
)

// Nothing is loaded elsewhere than on Linux.

const canLoad = false

func awaitHalt(int) error {
	return bourse.Errorf(bourse.CodeUnavailable, "a program cannot be loaded without being run")
}

func unprivileged(string) error { return nil }

func setGoing(int) {}

func killHalted(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

func traced(*syscall.SysProcAttr) {}
