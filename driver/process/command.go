package process

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// defaultPath is the search path for commands if PATH is not set in the task's or the supervisor's environment.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookup returns the path of a command that will be executed in dir. A name without a slash is looked up in the
// directories listed in path. Relative directories in path are ignored, so that a program in the working directory is
// not executed by accident.
func lookup(name, path, dir string) (string, error) {
	if name == "" {
		return "", bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		exists, err := executable(name, full)
		if !exists {
			return "", bourse.Errorf(bourse.CodeInvalid, "command %s does not exist", bourse.Quoted(name))
		}
		return full, err
	}
	var denied error
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			continue
		}
		full := filepath.Join(entry, name)
		exists, err := executable(name, full)
		if exists && err == nil {
			return full, nil
		}
		denied = cmp.Or(denied, err)
	}
	if denied != nil {
		return "", denied
	}
	return "", bourse.Errorf(bourse.CodeInvalid, "command %s was not found in PATH %s", bourse.Quoted(name), bourse.Quoted(path))
}

// executable reports whether the file at the path full exists. It returns CodeInvalid if no user may execute the file.
// Whether the task's user may execute it is checked later, by the kernel. name is the command's name for error
// messages.
func executable(name, full string) (exists bool, err error) {
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		err = bourse.Errorf(bourse.CodeInvalid, "command %s: %w", bourse.Quoted(name), err)
	case info.IsDir():
		err = bourse.Errorf(bourse.CodeInvalid, "command %s is a directory", bourse.Quoted(name))
	case info.Mode()&0o111 == 0:
		err = bourse.Errorf(bourse.CodeInvalid, "command %s is not executable (mode %s)", bourse.Quoted(name), info.Mode())
	}
	return true, err
}

// startError adds a code to an error from fork or exec.
func startError(name string, with *taskEnv, err error) error {
	code := bourse.CodeInvalid
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ETXTBSY):
		code = bourse.CodeUnavailable
	case with.user != nil && errors.Is(err, syscall.EACCES):
		return bourse.Errorf(code, "command %s cannot be executed in %s by user %s: %w", bourse.Quoted(name), bourse.Quoted(with.dir), bourse.Quoted(with.user.Name), err)
	case errors.Is(err, syscall.ENOENT):
		return bourse.Errorf(code, "command %s cannot be executed: its interpreter or loader does not exist", bourse.Quoted(name))
	case errors.Is(err, syscall.EINVAL): // an argument contains a NUL byte
		return bourse.Errorf(code, "command %s or its environment contains a NUL byte", bourse.Quoted(name))
	}
	return bourse.Errorf(code, "command %s cannot be executed: %w", bourse.Quoted(name), err)
}

// variable returns the value of a variable in env, and whether the variable is set. If env contains the variable
// several times, it returns the last value, as most programs do.
func variable(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// searchPath returns the PATH that is used to look up a task's commands.
func searchPath(env []string) string {
	if p, ok := variable(env, "PATH"); ok {
		return p
	}
	if p, ok := os.LookupEnv("PATH"); ok {
		return p
	}
	return defaultPath
}

func stringsOf(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

func bytesOf(in []string) [][]byte {
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}
