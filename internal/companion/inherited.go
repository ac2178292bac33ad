package companion

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes file descriptors that this process has inherited by accident. Otherwise
// another process might wait in vain for them to be closed, and every child process would inherit
// them, too. It recognizes them by their missing close-on-exec flag; this process's own
// descriptors have the flag.
func CloseInherited() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < readyDescriptor || (fd == readyDescriptor && os.Getenv(readyVariable) != "") {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
