package session

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sequence returns the sequence number of an open block device. While the device is open, the kernel does not assign
// its device number to another device.
func Sequence(f *os.File) (n uint64, err error) {
	const getSequence = 0x80081280 // BLKGETDISKSEQ, since Linux 5.15
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getSequence, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0, fmt.Errorf("get the sequence number of %s: %w", f.Name(), errno)
	}
	return n, nil
}
