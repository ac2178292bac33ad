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

// ownHost is the environment variable that is set in the test process with its own
// network namespace.
const ownHost = "BOURSE_NETWORK_TEST_HOST"

// TestMain runs the tests in their own network and mount namespaces, so that they do not change the
// real host, and everything that they leave behind disappears with the namespaces. Without root,
// only the tests that do not need namespaces run.
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
		// Package net determines the host's capabilities once, when the first socket listens at
		// [::]. This must not happen in a namespace whose lo is down.
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
