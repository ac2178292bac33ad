package logs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// intoFile moves what is in a FIFO to a place of a file, with one system call
// that takes from the one as many bytes as it has written to the other. EAGAIN
// when there is nothing, 0 bytes at the end.
func intoFile(fifo int, f *os.File, at int64) (int, error) {
	for {
		offset := at
		n, err := unix.Splice(fifo, nil, int(f.Fd()), &offset, spliceMost, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EINVAL): // a file system that cannot
			return copyInto(fifo, f, at)
		}
		return int(n), err
	}
}
