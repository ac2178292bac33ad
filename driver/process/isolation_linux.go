package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// resolvPath is the path of the file that lists a program's name servers.
const resolvPath = "/etc/resolv.conf"

// enter moves the calling thread into the task's namespaces. The thread must exit soon afterwards. The first
// call, which is for the task's program, creates the namespaces; later calls reuse them.
func (a *isolation) enter(in places) error {
	if a.network == nil && a.mount == nil {
		return a.make(in)
	}
	return a.join()
}

// make creates the task's namespaces and moves the calling thread into them.
func (a *isolation) make(in places) error {
	if os.Geteuid() != 0 {
		return bourse.Errorf(bourse.CodeInvalid, "private networks and mounts require a worker that runs as root")
	}
	if a.changesFiles() {
		if err := a.makeMounts(in); err != nil {
			return err
		}
	}
	if a.namespace == "" {
		return nil
	}
	f, err := os.Open(a.namespace)
	if err != nil {
		return errIsolation("network namespace", err)
	}
	a.network = f
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return errIsolation("enter network namespace "+bourse.Quoted(a.namespace), err)
	}
	return nil
}

func (a *isolation) makeMounts(in places) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return errIsolation("create a mount namespace", err)
	}
	// Make the mounts slaves of the host's mounts. Mounts in this namespace then do not propagate to the host, but
	// unmounts on the host propagate to this namespace. If unmounts did not propagate, all volumes that are mounted now
	// would stay mounted as long as this task runs.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return errIsolation("separate from the host's mounts", err)
	}
	if err := a.dropOthers(in); err != nil {
		return errIsolation("unmount other machines' mounts", err)
	}
	if a.resolver != nil {
		if err := a.mountResolver(in.scratch); err != nil {
			return err
		}
	}
	for _, m := range a.mounts {
		if err := bind(m); err != nil {
			return err
		}
	}
	var err error
	a.mount, err = os.Open("/proc/thread-self/ns/mnt")
	return err
}

// dropOthers unmounts other machines' directories in the task's namespace. This is necessary if the host's root mount
// is private, because unmounts on the host then do not propagate to the namespace. Without dropOthers, another
// machine's volume would stay mounted, with unwritten data, as long as this task runs.
func (a *isolation) dropOthers(in places) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(in.data))
	if err != nil {
		return err
	}
	own := []string{resolved(in.dir), resolved(a.namespace)}
	for _, m := range a.mounts {
		own = append(own, resolved(m.Source))
	}
	for _, m := range slices.Backward(mounts) { // the last mount is on top
		uses := func(path string) bool { return within(path, m.Mountpoint) }
		if m.Mountpoint == in.data || slices.ContainsFunc(own, uses) {
			continue
		}
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		gone := errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) // it was unmounted together with its parent mount, or its directory was removed
		if err != nil && !gone {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// resolved resolves all symbolic links in a path, because mountinfo contains resolved paths.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}

// within reports whether path is dir or is below dir.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// mountResolver mounts a file with the task's name servers over /etc/resolv.conf. It creates the file in scratch, and
// unlinks it once it is mounted.
func (a *isolation) mountResolver(scratch string) error {
	f, err := os.CreateTemp(scratch, "resolv-")
	if err != nil {
		return errIsolation("create resolv.conf", err)
	}
	_, err = f.Write(a.resolver)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = bind(driver.Mount{Source: f.Name(), Target: resolvPath})
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// bind mounts a directory or file at another path in the calling thread's mount namespace.
func bind(m driver.Mount) error {
	what := fmt.Sprintf("mount %s on %s", bourse.Quoted(m.Source), bourse.Quoted(m.Target))
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
		return errIsolation(what, err)
	}
	if !m.ReadOnly {
		return nil
	}
	// Repeat the mount's other flags, because remounting would reset them.
	var stat unix.Statfs_t
	if err := unix.Statfs(m.Target, &stat); err != nil {
		return errIsolation(what, err)
	}
	keep := uintptr(stat.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if err := unix.Mount("", m.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, ""); err != nil {
		return errIsolation(what+" read-only", err)
	}
	return nil
}

// join moves the calling thread into the namespaces of a running task.
func (a *isolation) join() error {
	if a.mount != nil {
		// Stop sharing the working directory with other threads. Otherwise, this thread could not enter a mount
		// namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return errIsolation("unshare the working directory", err)
		}
		if err := unix.Setns(int(a.mount.Fd()), unix.CLONE_NEWNS); err != nil {
			return errIsolation("enter the task's mount namespace", err)
		}
	}
	if a.network != nil {
		if err := unix.Setns(int(a.network.Fd()), unix.CLONE_NEWNET); err != nil {
			return errIsolation("enter the task's network namespace", err)
		}
	}
	return nil
}
