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

// CheckHost returns CodeUnavailable if file systems cannot be created and mounted on this host.
// The error message names the missing requirement.
func CheckHost() error {
	no := func(format string, args ...any) error {
		return bourse.Errorf(bourse.CodeUnavailable, "this host does not support volumes: "+format, args...)
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
		return no("loop devices are missing: %w", err)
	}
	return f.Close()
}

// mayMount reports whether this process may mount block devices. That requires CAP_SYS_ADMIN on the host, not just in a
// user namespace.
func mayMount() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(users)), " ") == "0 0 4294967295" && capable(unix.CAP_SYS_ADMIN)
}

// mayGrow reports whether this process may grow a mounted ext4 file system.
func mayGrow() bool { return capable(unix.CAP_SYS_RESOURCE) }

// capable reports whether the process has a capability, which must be one of the first 32.
func capable(which int) bool {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<which) != 0
}

// killWithParent returns attributes that make the kernel kill a child process when this process
// dies.
func killWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// File system ioctls that x/sys does not define; see linux/fs.h and fs/ext4/ext4.h.
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
	defer func() { _ = unix.Close(fd) }() // Close cannot lose data, because nothing was written
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(op), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// freeze blocks all writers to the mounted file system. When it returns, all earlier writes have reached the device,
// and the journal is empty.
func freeze(target string) error { return ioctlOn(target, fiFreeze, nil) }

// thaw unblocks the writers. It returns EINVAL if the file system was not frozen.
func thaw(target string) error { return ioctlOn(target, fiThaw, nil) }

// flush writes the mounted file system's dirty data to the device.
func flush(target string) error {
	fd, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // Close cannot lose data, because this is a directory
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

// mountExt4 mounts a device. Device nodes on a volume cannot be used. Space that a machine frees
// is returned to the host's disk.
func mountExt4(device, target string, scratch bool) error {
	flags, options := uintptr(unix.MS_NODEV|unix.MS_NOATIME), "discard"
	if scratch {
		flags = unix.MS_NOATIME
	}
	return unix.Mount(device, target, "ext4", flags, options)
}

// isDamage reports whether err, returned by mountExt4, means that the file system is damaged.
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

// mountedOn returns the path of the block device ("/dev/loop3") that is mounted on a directory,
// or "" if there is none.
func mountedOn(target string) (string, error) {
	var there, parent unix.Stat_t
	if err := unix.Lstat(target, &there); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", nil
		}
		return "", fmt.Errorf("stat %s: %w", filepath.Base(target), err)
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

// statUsage returns the usage of the mounted file system.
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
