package kv

import "os"

// diskOps provides the disk operations of the write-ahead log. Tests replace it to inject
// failures.
type diskOps struct {
	writeAt func(f *os.File, b []byte, at int64) (int, error)
	sync    func(f *os.File) error
}

// realDisk returns the diskOps of the operating system.
func realDisk() diskOps { return diskOps{(*os.File).WriteAt, datasync} }
