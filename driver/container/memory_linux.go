package container

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// tmpfs returns the directory in which all drivers store secrets. It is on an in-memory file system
// that containerd can access.
func tmpfs() (string, error) {
	for _, dir := range []string{"/run", "/dev/shm"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
			return filepath.Join(dir, "bourse"), nil
		}
	}
	return "", bourse.Errorf(bourse.CodeFailedPrecondition, "containers' secrets require a tmpfs, but neither /run nor /dev/shm is one")
}

// checkPrivate returns an error unless dir is a directory that only this process's user can access.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "directory %s must be accessible only to this worker's user", dir)
	}
	return nil
}

// inMemory writes data to an anonymous in-memory file. It returns a path under which this process
// can open the file, even after the process has executed another program.
func inMemory(data []byte) (string, error) {
	fd, err := unix.MemfdCreate("process.json", 0)
	if err != nil {
		return "", err
	}
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil {
			return "", err
		}
		data = data[n:]
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// ExecRunc replaces this process with runc and passes the container's secrets to it. The first
// element of args is the directory that contains all containers' secrets; the others are arguments
// for runc. ExecRunc returns only if it fails. Before it returns, it also writes the error to the
// log file that the shim reads.
func ExecRunc(args []string) error {
	runc, err := exec.LookPath("runc")
	if err == nil {
		var with []string
		if with, err = prepare(args); err == nil {
			err = unix.Exec(runc, append([]string{runc}, with...), os.Environ())
		}
	}
	err = fmt.Errorf("secrets: %w", err)
	if i := slices.Index(args, "--log"); i >= 0 && i+1 < len(args) {
		line, _ := json.Marshal(map[string]string{"level": "error", "msg": err.Error(), "time": time.Now().UTC().Format(time.RFC3339)})
		if f, open := os.OpenFile(args[i+1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); open == nil {
			_, _ = f.Write(append(line, '\n'))
			_ = f.Close()
		}
	}
	return err
}
