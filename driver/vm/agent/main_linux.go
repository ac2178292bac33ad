// Agent is the program that the virtual machine driver runs on both sides of a machine: in its container and in its
// guest. It is small and statically linked, because each machine has a copy in its memory. It runs in one of these
// roles:
//
//   - "agent run": the first process in a machine's container. It starts qemu, and makes the
//     guest run the machine's program with this process's input, output, signals and exit code.
//   - "agent exec NAME": runs another program in the running guest in the same way.
//   - "agent suspend" and "agent resume": ask the container's first process to suspend or resume the machine.
//   - /init in the guest's initial file system: process 1 of the guest.
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

// failed is the exit code of a container's agent if its program did not run or if the program's exit code is unknown.
const failed = 125

func host(args []string) (int, error) {
	// qemu runs as the same user. A guest that has taken over qemu must not be able to access this process's memory and
	// files.
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
