package kv

import "os"

// diskOps provides the disk operations of the write-ahead log. Tests replace it to inject
// failures.
type diskOps struct {
	writeAt func(f *os.File, b []byte, at int64) (int, error)
	sync    func(f *os.File) error
}

// realDisk returns operations on real files.
func realDisk() diskOps { return diskOps{(*os.File).WriteAt, datasync} }
