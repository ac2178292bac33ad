package container

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/logs"
)

// layout describes the driver's directory:
//
//	tasks/<machine>-<boot>/   directory of a task that has a container
//	  stdout, stderr          FIFOs that the shim writes to and the keeper reads from
//	  stdin                   the program's stdin; see makeStdin
//	  started                 exists once the program has been started; if containerd then has no task, the task was lost
//	  hosts, resolv.conf, …   name resolution files of the task's network
//	  exec-…/                 FIFOs of a command executed in the task
//	  machine/                sockets and status files of its virtual machine
//	mnt/<machine>-<boot>/     mount point of the root file system while files are written into it
type layout struct{ dir string }

func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("directory %s: %w", dir, err)
	}
	for _, name := range []string{"tasks", "mnt"} {
		if err := os.MkdirAll(filepath.Join(abs, name), 0o700); err != nil {
			return layout{}, err
		}
	}
	abs, err = filepath.EvalSymlinks(abs)
	return layout{abs}, err
}

// mark returns the string that marks containers and cgroups as belonging to this driver. It is a
// hash of the directory's path.
func (l layout) mark() string {
	sum := sha256.Sum256([]byte(l.dir))
	return hex.EncodeToString(sum[:6])
}

// container returns the id of a task's container, snapshot and cgroup. The id contains the mark,
// because runtimes require container ids to be unique on the host.
func (l layout) container(id driver.TaskID) string { return l.mark() + "-" + taskName(id) }

// taskName returns the part of a container's id that identifies the task.
func taskName(id driver.TaskID) string { return string(id.Machine) + "-" + strconv.Itoa(id.Boot) }

// parseTaskName is the inverse of taskName.
func parseTaskName(name string) (driver.TaskID, bool) {
	machine, boot, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(boot)
	id := driver.TaskID{Machine: bourse.MachineID(machine), Boot: n}
	return id, err == nil && n >= 1 && id.Machine.Validate() == nil && taskName(id) == name
}

// taskOf returns the task that a container belongs to. It returns false if the container does not
// belong to this driver.
func (l layout) taskOf(container string) (driver.TaskID, bool) {
	name, ok := strings.CutPrefix(container, l.mark()+"-")
	if !ok {
		return driver.TaskID{}, false
	}
	return parseTaskName(name)
}

// Task ids are safe to use in these paths: they have been validated, and consist of hex digits and
// a number.

func (l layout) tasks() string                { return filepath.Join(l.dir, "tasks") }
func (l layout) task(id driver.TaskID) string { return filepath.Join(l.tasks(), taskName(id)) }
func (l layout) started(id driver.TaskID) string {
	return filepath.Join(l.task(id), "started")
}

func (l layout) machine(id driver.TaskID) string {
	return filepath.Join(l.task(id), "machine")
}
func (l layout) mounts() string                { return filepath.Join(l.dir, "mnt") }
func (l layout) mount(id driver.TaskID) string { return filepath.Join(l.mounts(), taskName(id)) }

// source describes a task's output to the keeper.
func (l layout) source(id driver.TaskID, tty bool) logs.Source {
	s := logs.Source{Machine: id.Machine, Boot: id.Boot, Stdout: filepath.Join(l.task(id), "stdout")}
	if !tty {
		s.Stderr = filepath.Join(l.task(id), "stderr")
	}
	return s
}

// makeTask creates a task's directory with its FIFOs. It reuses a directory left by an interrupted
// start.
func (l layout) makeTask(id driver.TaskID, tty bool) error {
	if err := os.Mkdir(l.task(id), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s := l.source(id, tty)
	for _, path := range []string{s.Stdout, s.Stderr} {
		if path == "" {
			continue
		}
		if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("create FIFO %s: %w", path, err)
		}
	}
	return nil
}

// list returns the ids of all tasks that have a directory.
func (l layout) list() ([]driver.TaskID, error) {
	entries, err := os.ReadDir(l.tasks())
	if err != nil {
		return nil, err
	}
	var out []driver.TaskID
	for _, e := range entries {
		if id, ok := parseTaskName(e.Name()); ok {
			out = append(out, id)
		}
	}
	return out, nil
}

// shimSocket returns the path of a container's shim socket, which must be removed if the shim was
// killed. See SocketAddress in containerd.
func shimSocket(address, namespace, container string) string {
	const root = "/run/containerd/s"
	sum := sha256.Sum256([]byte(filepath.Join(address, namespace, container)))
	return filepath.Join(root, hex.EncodeToString(sum[:]))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
