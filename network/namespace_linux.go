package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// onThread calls a function on a thread that runs no other goroutine and exits when the function returns. The function
// may therefore change the thread's network namespace.
func onThread[T any](do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread exits with the goroutine
		value, err := do()
		done <- result{value, err}
	}()
	r := <-done
	return r.value, r.err
}

// inNamespace calls a function on a separate thread that has entered the namespace.
func inNamespace[T any](ns *os.File, do func() (T, error)) (T, error) {
	return onThread(func() (T, error) {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			var none T
			return none, fmt.Errorf("enter network namespace: %w", err)
		}
		return do()
	})
}

// settings are the sysctls of a new namespace. They disable automatic addresses and, as is usual for containers, allow
// all users to ping and to listen on ports below 1024.
var settings = map[string]string{
	"ipv6/conf/all/disable_ipv6":         "0",
	"ipv6/conf/default/disable_ipv6":     "0",
	"ipv6/conf/default/addr_gen_mode":    "1",
	"ipv6/conf/default/accept_ra":        "0",
	"ipv6/conf/default/accept_dad":       "0",
	"ipv4/ip_unprivileged_port_start":    "0",
	"ipv4/ping_group_range":              "0 2147483647",
	"ipv4/conf/default/accept_redirects": "0",
}

// newNamespace creates a network namespace. The namespace exists as long as its file is open, it is bound to a path, or
// a process is in it.
func newNamespace() (*os.File, error) {
	return onThread(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("create network namespace: %w", err)
		}
		for name, value := range settings {
			// Ignore settings that this kernel lacks; its defaults apply.
			if err := setting(name).set(value); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
		return os.Open("/proc/thread-self/ns/net")
	})
}

// setting is the path of a sysctl, relative to /proc/sys/net. Its value belongs to the calling thread's namespace.
type setting string

func (s setting) path() string { return filepath.Join("/proc/sys/net", string(s)) }

func (s setting) set(value string) error {
	return os.WriteFile(s.path(), []byte(value), 0)
}

// files is a directory that contains one file per machine, <dir>/<machine>. The machine's namespace is bind-mounted on
// that file, which keeps the namespace alive.
type files string

func (f files) path(id bourse.MachineID) string { return filepath.Join(string(f), string(id)) }

// open returns a machine's namespace, or an error that matches os.ErrNotExist if there is none. A plain file, which is
// what remains after the host has restarted, does not count.
func (f files) open(id bourse.MachineID) (*os.File, error) {
	file, err := os.Open(f.path(id))
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if fs.Type != unix.NSFS_MAGIC {
		return nil, errors.Join(fmt.Errorf("%s: %w: not a namespace", f.path(id), os.ErrNotExist), file.Close())
	}
	return file, nil
}

// bind mounts the namespace on the machine's path, unless a namespace is already mounted there.
func (f files) bind(id bourse.MachineID, ns *os.File) error {
	if old, err := f.open(id); err == nil {
		return old.Close()
	}
	file, err := os.OpenFile(f.path(id), os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), f.path(id), "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind namespace", Path: f.path(id), Err: err}
	}
	return nil
}

// remove unmounts everything from the machine's path, and then removes the path.
func (f files) remove(id bourse.MachineID) error {
	for {
		err := unix.Unmount(f.path(id), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) { // not a mount point, or no longer one
			break
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return &os.PathError{Op: "unmount", Path: f.path(id), Err: err}
		}
	}
	if err := os.Remove(f.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// list returns the machines that have a path, whether or not a namespace is mounted there.
func (f files) list() ([]bourse.MachineID, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ids []bourse.MachineID
	for _, e := range entries {
		if id := bourse.MachineID(e.Name()); id.Validate() == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
