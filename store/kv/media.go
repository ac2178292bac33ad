package kv

import "os"

// media provides the disk operations of the write-ahead log. Tests replace it to inject
// failures.
type media struct {
	writeAt func(f *os.File, b []byte, at int64) (int, error)
	sync    func(f *os.File) error
}

// realDisk returns the media that uses the operating system.
func realDisk() media { return media{(*os.File).WriteAt, datasync} }
