package logs

import (
	"os"
	"syscall"
)

// copyInto is intoFile where there is no splice: what a kill finds between the
// two calls is lost.
func copyInto(fifo int, f *os.File, at int64) (int, error) {
	b := buffers.Get().(*ioBuffers)
	defer buffers.Put(b)
	for {
		n, err := syscall.Read(fifo, b.in)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return 0, err
		}
		return f.WriteAt(b.in[:n], at)
	}
}
