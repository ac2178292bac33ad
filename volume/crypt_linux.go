package volume

import (
	"bytes"
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostSupportsCrypt reports whether this host can use dm-crypt. That requires cryptsetup, and device-mapper with the
// crypt target. The kernel loads the target's module on demand.
func hostSupportsCrypt() bool {
	if _, err := tool("cryptsetup"); err != nil {
		return false
	}
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = control.Close() }() // Close cannot lose data, because nothing was written
	if targetSupported(control, "crypt") {
		return true
	}
	_, err = os.Stat("/sys/module/dm_crypt") // kernels before 5.2 do not support the query
	return err == nil
}

// targetSupported asks device-mapper whether it supports a target. The request is a struct
// dm_ioctl of linux/dm-ioctl.h with space for the answer.
func targetSupported(control *os.File, target string) bool {
	const header, size, nameAt = 312, 4096, 48
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b[0:], 4) // major version 4; minor and patch version 0
	binary.NativeEndian.PutUint32(b[12:], size)
	binary.NativeEndian.PutUint32(b[16:], header)
	copy(b[nameAt:], target)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.DM_GET_TARGET_VERSION, uintptr(unsafe.Pointer(&b[0])))
	return errno == 0 && bytes.Contains(b[header:], []byte(target))
}
