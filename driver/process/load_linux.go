package process

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// A program is loaded by ptrace(2): the child asks to be traced and executes,
// and the kernel halts it with SIGTRAP before its first instruction. Only the
// thread that has forked it may set it going.

const canLoad = true

// awaitHalt waits until the calling thread's new child has halted after its
// exec, and makes sure that it does not outlive this thread so. An error means
// that it is not to be let go: it has ended, or tracing costs it privileges.
//
// It is not left alone with SIGTRAP taken from it and EXITKILL not yet set: a
// tracer that died in between would leave it running.
func awaitHalt(pid int) error {
	if err := waitHalt(pid, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "the program has ended: %w", err)
	}
	if err := waitHalt(pid, unix.WSTOPPED|unix.WNOHANG); err != nil {
		return err
	}
	return unprivileged(pid)
}

func waitHalt(pid, options int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, options, nil)
		if err != syscall.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// unprivileged reports a program whose file gives it privileges: the kernel
// does not give them to who is traced by somebody without.
func unprivileged(pid int) error {
	exe := "/proc/" + strconv.Itoa(pid) + "/exe" // the interpreter, of a script
	info, err := os.Stat(exe)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "the program's file cannot be seen: %w", err)
	}
	capable, err := unix.Getxattr(exe, "security.capability", nil)
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || (err == nil && capable > 0) {
		return bourse.Errorf(bourse.CodeUnavailable, "the program has privileges of its own")
	}
	return nil
}

// setGoing has a program run that the calling thread has loaded. It fails when
// it was killed meanwhile.
func setGoing(pid int) { _ = syscall.PtraceDetach(pid) }

// killHalted ends one that has not run.
func killHalted(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// traced has a child halt after its exec.
func traced(sys *syscall.SysProcAttr) { sys.Ptrace = true }
