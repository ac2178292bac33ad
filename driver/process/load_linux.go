package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
// that it has ended.
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
	return waitHalt(pid, unix.WSTOPPED|unix.WNOHANG)
}

func waitHalt(pid, options int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, options, nil)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// maxInterpreters is how many scripts the kernel follows to a program.
const maxInterpreters = 5

// unprivileged reports a program whose file gives it privileges: the kernel
// does not give them to who is traced by somebody without.
func unprivileged(path string) error {
	for range maxInterpreters {
		next, err := interpreterOf(path)
		if err != nil || next == "" {
			return err
		}
		path = next
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the program is a script of scripts")
}

// interpreterOf gives the program that executes a script, "" for what is none.
func interpreterOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the program's file cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the program's file cannot be seen: %w", err)
	}
	capable, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil)
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || (err == nil && capable > 0) {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the program has privileges of its own")
	}
	head := make([]byte, 256) // as much as the kernel looks at
	n, err := f.Read(head)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the program's file cannot be read: %w", err)
	}
	line, script := bytes.CutPrefix(head[:n], []byte("#!"))
	if !script {
		return "", nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := bytes.Fields(line)
	if len(words) == 0 || !filepath.IsAbs(string(words[0])) {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the script's interpreter is unknown")
	}
	return string(words[0]), nil
}

// setGoing has a program run that the calling thread has loaded. It fails when
// it was killed meanwhile.
func setGoing(pid int) { _ = syscall.PtraceDetach(pid) }

// killHalted ends one that has not run.
func killHalted(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// traced has a child halt after its exec.
func traced(sys *syscall.SysProcAttr) { sys.Ptrace = true }
