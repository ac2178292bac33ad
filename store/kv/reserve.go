package kv

import (
	"os"
)

// reserve fills a file with zeros up to size bytes and returns its new size. When a page is written for the first
// time, the file system records its location, and every sync waits for that. Later writes of the page cost only its
// data. If the disk is too full, the file remains as it was.
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
