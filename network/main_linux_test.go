package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownHost is set in the process whose host is a namespace of its own.
const ownHost = "BOURSE_NETWORK_TEST_HOST"

// TestMain runs the tests in a network namespace and a mount namespace of
// their own: their "host" is not the host that they run on, and
// what they leave ends with them. Without root the tests of decisions run.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "daemon":
		os.Exit(crashDaemon(os.Args[2], os.Args[3]))
	case os.Geteuid() != 0:
		fmt.Fprintln(os.Stderr, "not root: only decisions are tested")
		os.Exit(m.Run())
	case os.Getenv(ownHost) != "":
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			panic(err)
		}
		if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil {
			panic("cannot set lo up")
		}
		// Package net looks once what the host can, at the first socket that listens
		// at [::]: not in a namespace whose lo is down.
		first, err := net.Listen("tcp", "[::]:0")
		if err != nil || first.Close() != nil {
			panic("cannot listen")
		}
		os.Exit(m.Run())
	}
	inner := exec.Command("/proc/self/exe", os.Args[1:]...)
	inner.Env = append(os.Environ(), ownHost+"=1", "GORACE=atexit_sleep_ms=0")
	inner.Stdin, inner.Stdout, inner.Stderr = os.Stdin, os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := inner.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(e.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run the tests in a namespace of their own:", err)
		os.Exit(1)
	}
}
