// Agent is the program of the virtual machines' driver on both sides of the boundary. It is
// small and static, because it takes memory of every machine. It runs as one of these:
//
//   - "agent run": the first process of the container around a machine. It starts qemu, and
//     lets the guest run the machine's program with this process's input, output, signals and exit code.
//   - "agent exec NAME": the same for another program in a running guest.
//   - "agent suspend" and "agent resume": ask the first process to do so.
//   - process 1 of the guest, from the initial file system (/init).
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

func main() {
	if os.Getpid() == 1 && len(os.Args) == 1 { // the kernel passes no arguments to /init
		guest()
		return
	}
	code, err := host(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bourse:", err)
	}
	os.Exit(code)
}

// failed is the exit code of an agent on the host whose program did not run, or whose exit is unknown.
const failed = 125

func host(args []string) (int, error) {
	// qemu runs as the same user. If a guest has broken out of qemu, it must not get at this process's memory and files.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return failed, err
	}
	switch {
	case len(args) == 1 && args[0] == "run":
		return runMachine()
	case len(args) == 2 && args[0] == "exec":
		return runExec(args[1])
	case len(args) == 1 && (args[0] == session.Suspend || args[0] == session.Resume):
		return runControl(args[0])
	}
	return failed, fmt.Errorf("invalid arguments %q", args)
}
