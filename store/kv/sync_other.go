//go:build !linux

package kv

import (
	"math"
	"os"
)

// datasync waits until a file's bytes are on the disk.
func datasync(f *os.File) error { return f.Sync() }

// allocate makes a file n bytes longer from at on.
func allocate(f *os.File, at, n int64) error { return f.Truncate(at + n) }

// free treats the space as unlimited: it is unknown on this system.
func free(string) (int64, error) { return math.MaxInt64, nil }
