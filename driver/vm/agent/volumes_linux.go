package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// mountVolumes mounts the machine's volumes.
func mountVolumes(volumes []session.Volume) error {
	for _, v := range volumes {
		if err := mountVolume(v); err != nil {
			return err
		}
	}
	return nil
}

func mountVolume(v session.Volume) error {
	device, err := findDisk(v.Serial)
	if err != nil {
		return fmt.Errorf("volume at %s: %w", v.Path, err)
	}
	if err := os.MkdirAll(v.Path, 0o755); err != nil {
		return orderError(fmt.Sprintf("volume at %q cannot be mounted: %v", v.Path, err))
	}
	err = unix.Mount(device, v.Path, "ext4", unix.MS_NODEV|unix.MS_NOATIME, "discard")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) || errors.Is(err, unix.EIO) {
		return orderError(fmt.Sprintf("volume at %q cannot be mounted, because its file system is damaged (%v): restore a snapshot", v.Path, err))
	}
	if err != nil {
		return fmt.Errorf("mount the volume at %s: %w", v.Path, err)
	}
	if err := growVolume(device, v.Path); err != nil { // the volume is usable with its previous size
		fmt.Fprintf(os.Stderr, "bourse: extend the file system at %s: %v\n", v.Path, err)
	}
	return nil
}

// findDisk returns the path of the disk with the given serial number.
func findDisk(serial string) (string, error) {
	files, _ := filepath.Glob("/sys/block/vd*/serial")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(text)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", errors.New("the guest has no such disk")
}

// growVolume extends a mounted file system to the size of its disk.
func growVolume(device, path string) error {
	const resize, blockSize = 0x40086610, 4096 // EXT4_IOC_RESIZE_FS
	disk, err := os.Open(device)
	if err != nil {
		return err
	}
	defer disk.Close()
	bytes, err := disk.Seek(0, 2)
	if err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	blocks := uint64(bytes) / blockSize
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resize, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return errno
	}
	return nil
}

// syncVolumes flushes the volumes' data to their disks.
func syncVolumes(volumes []session.Volume) {
	for _, v := range volumes {
		if dir, err := os.Open(v.Path); err == nil { // the guest's programs may have removed it
			_ = unix.Syncfs(int(dir.Fd())) // if this fails, the data is still in the snapshot
			_ = dir.Close()
		}
	}
}

// unmountTime is how long to retry unmounting while killed programs still have files open.
const unmountTime = 5 * time.Second

// unmountVolumes unmounts the volumes, which writes all of their data to their disks. All programs must have been
// killed. If a volume cannot be unmounted, unmountVolumes only flushes the data.
func unmountVolumes(volumes []session.Volume) {
	began := time.Now()
	for _, v := range slices.Backward(volumes) { // a volume may be mounted inside another one
		for {
			err := unix.Unmount(v.Path, 0)
			if errors.Is(err, unix.EBUSY) && time.Since(began) < unmountTime {
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil { // for example, because a program mounted another file system there
				unix.Sync()
			}
			break
		}
	}
}
