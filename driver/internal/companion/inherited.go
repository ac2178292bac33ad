package companion

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes the descriptors that the process that started us has passed on
// unknowingly: what we keep open, somebody may wait for the end of, and every
// child would inherit it too. Our own are all closed on exec.
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
