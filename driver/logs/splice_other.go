//go:build unix && !linux

package logs

import "os"

func intoFile(fifo int, f *os.File, at int64) (int, error) { return copyInto(fifo, f, at) }
