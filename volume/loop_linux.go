package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopTries is the maximum number of attempts to get a free device. An attempt fails if another process takes the
// device first.
const loopTries = 64

// attachLoop returns an open loop device that is bound to the image. The device remains bound while it is open or
// mounted. If lasting is true, it instead remains bound until detachLoop is called. If a device is already bound to the
// image, attachLoop returns that device.
func attachLoop(image string, lasting bool) (*os.File, error) {
	if dev, err := boundLoop(image); err != nil || dev != nil {
		if dev != nil { // update the device's size, because the image may have grown
			err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0)
		}
		return dev, err
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the device holds its own reference
	for range loopTries {
		dev, err := freeLoop()
		if isCleared(err) {
			continue // another process has just used and released this device
		}
		if err != nil {
			return nil, err
		}
		err = configure(dev, f, lasting)
		if err == nil {
			return dev, nil
		}
		_ = dev.Close() // with EBUSY, another process has bound the device first
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("bind %s: %w", dev.Name(), err)
		}
	}
	return nil, fmt.Errorf("found no free loop device in %d attempts", loopTries)
}

// isCleared reports whether err means that a device cannot be opened because it has just been
// detached from its image or is being detached.
func isCleared(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

// configure binds the device in a single call, so that no process sees a partly configured
// device. Direct I/O avoids a second copy of all data in memory, and blocks of 4 KiB allow direct
// I/O on any disk.
func configure(dev, image *os.File, lasting bool) error {
	cfg := unix.LoopConfig{Fd: uint32(image.Fd()), Size: blockSize}
	flags := uint32(unix.LO_FLAGS_AUTOCLEAR)
	if lasting {
		flags = 0
	}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image.Name())
	cfg.Info.Flags = flags | unix.LO_FLAGS_DIRECT_IO
	err := unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
	if errors.Is(err, unix.EINVAL) { // the image's file system does not support direct I/O
		cfg.Size, cfg.Info.Flags = 0, flags
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
	}
	return err
}

// freeLoop opens a device that the kernel has reported as free.
func freeLoop() (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err := errors.Join(err, control.Close()); err != nil {
		return nil, err
	}
	return openLoop(fmt.Sprintf("loop%d", n), os.O_RDWR)
}

// openLoop opens a device. It creates the device's node if there is no udev, as in a container's
// /dev.
func openLoop(name string, flag int) (*os.File, error) {
	path := "/dev/" + name
	dev, err := os.OpenFile(path, flag, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return dev, err
	}
	number, err := os.ReadFile(filepath.Join("/sys/block", name, "dev"))
	if err != nil {
		return nil, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(number), "%d:%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("device number of %s: %w", name, err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return os.OpenFile(path, flag, 0)
}

// boundLoop opens the device that is bound to the image. It returns nil if there is none. It selects candidates by
// the file names that the kernel reports. It then opens each candidate and compares the inodes, because a device
// cannot be bound to another file while it is open. It opens devices only for reading: after a device that was open
// for writing is closed, udev reads the device's file system, which a guest may have written.
func boundLoop(image string) (*os.File, error) {
	var want unix.Stat_t
	if err := unix.Stat(image, &want); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: filepath.Base(image), Err: err}
	}
	for name, file := range boundLoops() {
		if file != image {
			continue
		}
		dev, err := openLoop(name, os.O_RDONLY)
		if isCleared(err) {
			continue // the last user of the device has just closed it
		}
		if err != nil {
			return nil, err
		}
		got, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && got.Device == want.Dev && got.Inode == want.Ino {
			return dev, nil
		}
		_ = dev.Close() // the device is bound to another file
	}
	return nil, nil
}

// lastingLoop opens the device that attachLoop has bound to the image permanently. It returns nil
// if there is none.
func lastingLoop(image string) (*os.File, error) {
	dev, err := boundLoop(image)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || dev == nil {
		return nil, err
	}
	status, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err == nil && status.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		return dev, nil
	}
	return nil, errors.Join(err, dev.Close())
}

// detachLoop detaches the loop device that attachLoop has permanently bound to image. If the device
// is still open, the kernel detaches it when its last user closes it.
func detachLoop(image string) error {
	dev, err := lastingLoop(image)
	if err != nil || dev == nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0), dev.Close())
}

// boundLoops returns the host's bound loop devices, each with the path of the file to which it is bound.
func boundLoops() map[string]string {
	bound := map[string]string{}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is valid
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the device was cleared in the meantime
		}
		file := strings.TrimSuffix(strings.TrimRight(string(b), "\n"), " (deleted)")
		bound[filepath.Base(filepath.Dir(filepath.Dir(f)))] = file
	}
	return bound
}

// growLoop notifies the device that its image has grown.
func growLoop(image string) error {
	dev, err := boundLoop(image)
	if err != nil || dev == nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0), dev.Close())
}

// clearLoops detaches each loop device for whose file stray returns true. If a device is in use, the kernel detaches it
// when its last user closes it.
func clearLoops(stray func(file string) bool) error {
	var errs []error
	for name, file := range boundLoops() {
		if !stray(file) {
			continue
		}
		dev, err := openLoop(name, os.O_RDONLY)
		if isCleared(err) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); isCleared(err) {
			err = nil
		}
		errs = append(errs, err, dev.Close())
	}
	return errors.Join(errs...)
}
