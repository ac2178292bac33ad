package kv

import (
	"os"
)

// reserve fills a file with zeros up to size bytes and returns its new size. When a page of a file
// is written for the first time, the file system also records the page's location, and the next
// sync has to wait for that. Later, only the page's data is written. If the disk has too little
// space, the file remains unchanged.
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
