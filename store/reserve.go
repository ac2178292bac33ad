package store

import (
	"os"
)

// reserve writes zeros behind what a young file holds, up to size bytes. A
// page that is written for the first time makes the file system record where
// it lies, and every fsync waits for that; a page that has been written once
// costs its data alone. A disk too full for it keeps the file as it was.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close() // synced before, or given back
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil {
			return f.Truncate(info.Size())
		}
		at += int64(n)
	}
	return f.Sync()
}
