package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/oomscore"
)

// enterDir settles the working directory: the machine's own when none is
// named, which then is made.
func (s *supervisor) enterDir(id bourse.MachineID, with *surroundings) error {
	if with.dir == "" {
		with.dir = s.layout.home(id)
		if err := os.Mkdir(with.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return bourse.Errorf(bourse.CodeUnavailable, "machine's directory: %w", err)
		}
		if with.user != nil && os.Geteuid() == 0 {
			return os.Chown(with.dir, int(with.user.UID), int(with.user.GID))
		}
		return nil
	}
	if with.apart != nil {
		return nil // only its own thread sees it
	}
	return checkDir(with)
}

// checkDir reports CodeInvalid unless there is the directory.
func checkDir(with *surroundings) error {
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

// child is what is run in some surroundings.
type child struct {
	command  []string
	env      []string
	limits   driver.Limits
	files    [3]uintptr // stdin, stdout and stderr
	terminal bool       // files are a terminal, which becomes its own
	// born is called as soon as the child lives, before anybody can know of
	// its end, and gives what is called then.
	born func(pid int, g group) func(ended)
}

// run looks a program up and forks it in the given surroundings.
func (s *supervisor) run(groups grouping, with *surroundings, p child) (int, error) {
	if with.apart == nil {
		return s.runHere(groups, with, p)
	}
	return with.apart.do(s.layout.run(), func() (int, error) {
		if err := checkDir(with); err != nil {
			return 0, err
		}
		return s.runHere(groups, with, p)
	})
}

// runHere is run in the namespaces of the calling thread.
func (s *supervisor) runHere(groups grouping, with *surroundings, p child) (int, error) {
	path, err := lookup(p.command[0], searchPath(p.env), with.dir)
	if err != nil {
		return 0, err
	}
	forkExec := func(sys *syscall.SysProcAttr) (int, error) {
		// A session's leader leads a process group, too.
		sys.Setpgid, sys.Setsid, sys.Setctty = !p.terminal, p.terminal, p.terminal
		if u := with.user; u != nil && os.Geteuid() == 0 {
			sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
		}
		hurry(s.nice)
		var pid int
		var err error
		oomscore.Unprotected(func() {
			pid, err = syscall.ForkExec(path, p.command, &syscall.ProcAttr{Dir: with.dir, Env: p.env, Files: p.files[:], Sys: sys})
		})
		if err != nil {
			return 0, startError(p.command[0], with, err)
		}
		return pid, nil
	}
	return s.children.start(func() (int, func(ended), error) {
		pid, g, err := groups.fork(with.group, p.limits, forkExec)
		if err != nil {
			return 0, nil, err
		}
		return pid, p.born(pid, g), nil
	})
}
