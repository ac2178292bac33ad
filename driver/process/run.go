package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/internal/tuning"
)

// enterDir determines the working directory of a machine's program. If the task does not specify a
// directory, enterDir creates and uses the machine's own directory.
func (s *supervisor) enterDir(id bourse.MachineID, with *taskEnv) error {
	if with.dir == "" {
		with.dir = s.layout.home(id)
		if err := os.Mkdir(with.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return bourse.Errorf(bourse.CodeUnavailable, "create the machine's directory: %w", err)
		}
		if with.user != nil && os.Geteuid() == 0 {
			return os.Chown(with.dir, int(with.user.UID), int(with.user.GID))
		}
		return nil
	}
	if with.isolation != nil {
		return nil // checked later, because the directory may be visible only in the task's namespaces
	}
	return checkDir(with)
}

// checkDir returns CodeInvalid unless the working directory exists.
func checkDir(with *taskEnv) error {
	info, err := os.Stat(with.dir)
	switch {
	case err != nil:
		return bourse.Errorf(bourse.CodeInvalid, "working directory %s: %w", bourse.Quoted(with.dir), errors.Unwrap(err))
	case !info.IsDir():
		return bourse.Errorf(bourse.CodeInvalid, "working directory %s is not a directory", bourse.Quoted(with.dir))
	case !filepath.IsAbs(with.dir):
		return bourse.Errorf(bourse.CodeInvalid, "working directory %s is not absolute", bourse.Quoted(with.dir))
	}
	return nil
}

// child describes a program to run.
type child struct {
	command  []string
	env      []string
	files    [3]uintptr // stdin, stdout and stderr
	terminal bool       // whether files are a terminal, which becomes the program's controlling terminal
	// started is called as soon as the child exists. It returns a function, which is called when the child has ended.
	started func(pid int) func(ended)
}

// maxForkThreads is the maximum number of threads that prepare forks concurrently. Go serializes the
// forks themselves (syscall.ForkLock).
const maxForkThreads = 4

// run looks up a program and starts it in a task's cgroups and namespaces. It enters the cgroups first,
// because the paths of the cgroups may not be valid in the namespaces.
func (s *supervisor) run(with *taskEnv, p child) (pid int, err error) {
	inGroup := func() { pid, err = s.runInGroup(with, p, &syscall.SysProcAttr{}) }
	if g := with.group; g != nil {
		inGroup = func() {
			pid, err = g.Fork(func(sys *syscall.SysProcAttr) (int, error) { return s.runInGroup(with, p, sys) })
		}
	}
	if with.isolation == nil && (with.group == nil || !s.groups.ByThread()) {
		inGroup()
		return pid, err
	}
	s.threads <- struct{}{}
	defer func() { <-s.threads }()
	cgroup.OnOwnThread(inGroup)
	return pid, err
}

// runInGroup is the second part of run. If the task has cgroups, the calling thread is already in them, or sys makes
// the child start in them.
func (s *supervisor) runInGroup(with *taskEnv, p child, sys *syscall.SysProcAttr) (int, error) {
	if with.isolation != nil {
		if err := with.isolation.enter(places{data: filepath.Dir(s.layout.dir), scratch: s.layout.run(), dir: with.dir}); err != nil {
			return 0, err
		}
		if err := checkDir(with); err != nil {
			return 0, err
		}
	}
	return s.runInNamespaces(with, p, sys)
}

// runInNamespaces is the last part of run. It must be called on a thread that is in the task's namespaces, and in its
// cgroups unless sys makes the child start in them.
func (s *supervisor) runInNamespaces(with *taskEnv, p child, sys *syscall.SysProcAttr) (int, error) {
	path, err := lookup(p.command[0], searchPath(p.env), with.dir)
	if err != nil {
		return 0, err
	}
	return s.children.start(func() (int, func(ended), error) {
		// A program with a terminal leads a session, and therefore also a process group.
		sys.Setpgid, sys.Setsid, sys.Setctty = !p.terminal, p.terminal, p.terminal
		if u := with.user; u != nil && os.Geteuid() == 0 {
			sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
		}
		requestShortSlice(s.nice)
		var pid int
		var err error
		tuning.ForkUnprotected(func() {
			pid, err = syscall.ForkExec(path, p.command, &syscall.ProcAttr{Dir: with.dir, Env: p.env, Files: p.files[:], Sys: sys})
		})
		if err != nil {
			return 0, nil, startError(p.command[0], with, err)
		}
		return pid, p.started(pid), nil
	})
}
