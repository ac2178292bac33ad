package kv

import (
	"os"
)

// reserve extends a file with zeros to size bytes, and returns its new size. If the disk has too
// little space, the file remains unchanged. Reserving makes later syncs faster: the first time a
// page of a file is written, the file system also has to record the page's location, and the next
// sync waits for that.
func reserve(f *os.File, size int64) (int64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return info.Size(), err
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil {
			return info.Size(), f.Truncate(info.Size())
		}
		at += int64(n)
	}
	return size, f.Sync()
}
