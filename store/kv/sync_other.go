//go:build !linux

package kv

import (
	"math"
	"os"
)

// datasync waits until a file's data is on the disk.
func datasync(f *os.File) error { return f.Sync() }

// allocate extends a file to at+n bytes.
func allocate(f *os.File, at, n int64) error { return f.Truncate(at + n) }

// free returns math.MaxInt64, because the free space is unknown on this system.
func free(string) (int64, error) { return math.MaxInt64, nil }
