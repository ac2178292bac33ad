package kv

import "os"

// media is how the write-ahead log is written; tests make it fail.
type media struct {
	writeAt func(f *os.File, b []byte, at int64) (int, error)
	sync    func(f *os.File) error
}

// realDisk is the one that the system has.
func realDisk() media { return media{(*os.File).WriteAt, datasync} }
