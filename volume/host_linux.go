package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

const loopControl = "/dev/loop-control"

// checkHost reports CodeUnavailable, and what is missing, when no file system
// can be made and mounted here.
func checkHost() error {
	no := func(format string, args ...any) error {
		return bourse.Errorf(bourse.CodeUnavailable, "no volumes on this host: "+format, args...)
	}
	if !mayMount() {
		return no("mounting needs root")
	}
	for _, name := range []string{"mke2fs", "e2fsck", "tune2fs", "resize2fs", "e2undo"} {
		if _, err := tool(name); err != nil {
			return no("%s is missing (package e2fsprogs)", name)
		}
	}
	f, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return no("no loop devices: %w", err)
	}
	return f.Close()
}

// mayMount reports whether this process may mount block devices: it has
// CAP_SYS_ADMIN, and has it on the host and not just in a user namespace.
func mayMount() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(users)), " ") == "0 0 4294967295" && capable(unix.CAP_SYS_ADMIN)
}

// mayGrow reports whether ext4 lets this process grow a mounted file system.
func mayGrow() bool { return capable(unix.CAP_SYS_RESOURCE) }

// capable reports whether the process has one of the first 32 capabilities.
func capable(which int) bool {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<which) != 0
}

// diesWithUs makes a program end when we are killed.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// ioctls of file systems that x/sys does not name: linux/fs.h and fs/ext4/ext4.h.
const (
	fiFreeze   = 0xc0045877
	fiThaw     = 0xc0045878
	ext4Resize = 0x40086610
)

func ioctlOn(path string, op uint, arg unsafe.Pointer) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // only an ioctl was made
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(op), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// freeze makes all writers of the mounted file system wait, with everything
// written before on its device and its journal empty.
func freeze(target string) error { return ioctlOn(target, fiFreeze, nil) }

// thaw lets them go on; it reports EINVAL when they did not wait.
func thaw(target string) error { return ioctlOn(target, fiThaw, nil) }

// flush writes what is written so far of the mounted file system.
func flush(target string) error {
	fd, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // a directory
	return unix.Syncfs(fd)
}

// growFS makes the mounted file system as large as its device.
func growFS(target, device string) error {
	d, err := os.Open(device)
	if err != nil {
		return err
	}
	bytes, err := d.Seek(0, io.SeekEnd)
	if closing := d.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	blocks := uint64(bytes) / blockSize
	return ioctlOn(target, ext4Resize, unsafe.Pointer(&blocks))
}

// mountExt4 mounts a device. A volume's device nodes are without effect; so
// is what a machine deletes returned to the host's disk.
func mountExt4(device, target string, scratch bool) error {
	flags, options := uintptr(unix.MS_NODEV|unix.MS_NOATIME), "discard"
	if scratch {
		flags = unix.MS_NOATIME
	}
	return unix.Mount(device, target, "ext4", flags, options)
}

// isDamage reports whether an error of mountExt4 is the file system's fault.
func isDamage(err error) bool {
	for _, e := range []error{unix.EINVAL, unix.EIO, unix.EBADMSG, unix.EUCLEAN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func unmount(target string) error { return unix.Unmount(target, unix.UMOUNT_NOFOLLOW) }

func detach(target string) error { return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }

// mountedOn returns the block device ("/dev/loop3") that is mounted on the
// directory, "" when none is.
func mountedOn(target string) (string, error) {
	var there, parent unix.Stat_t
	if err := unix.Lstat(target, &there); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", nil
		}
		return "", fmt.Errorf("look at %s: %w", filepath.Base(target), err)
	}
	if err := unix.Lstat(filepath.Dir(target), &parent); err != nil {
		return "", err
	}
	if there.Dev == parent.Dev {
		return "", nil
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(there.Dev), unix.Minor(there.Dev)))
	if err != nil {
		return "", err
	}
	return "/dev/" + filepath.Base(link), nil
}

// statUsage returns how full the mounted file system is.
func statUsage(target string) (bourse.VolumeUsage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return bourse.VolumeUsage{}, err
	}
	return bourse.VolumeUsage{
		BlockSize: int64(st.Bsize), Blocks: int64(st.Blocks), BlocksFree: int64(st.Bfree), BlocksAvail: int64(st.Bavail),
	}, nil
}

func inodeOf(st os.FileInfo) uint64 {
	if raw, ok := st.Sys().(*syscall.Stat_t); ok {
		return raw.Ino
	}
	return 0
}
