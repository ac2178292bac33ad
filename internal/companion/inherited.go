package companion

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes the file descriptors that this process inherited by accident. It recognizes
// them because they lack the close-on-exec flag, which this process's own descriptors have. Without
// CloseInherited, this process and its children would keep the descriptors open, and another
// process might wait for them to be closed.
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
