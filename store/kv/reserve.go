package kv

import (
	"os"
)

// reserve writes zeros behind what a young file holds, up to size bytes, and
// returns the size that the file has then. A page that is written for the first
// time makes the file system record where it lies, and every sync waits for
// that; a page that has been written once costs its data alone. A disk too
// full for it keeps the file as it was.
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
