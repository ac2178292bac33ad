//go:build !linux

package kv

import "testing"

// mountSmall returns a directory on a small file system.
func mountSmall(t *testing.T) string {
	t.Helper()
	t.Skip("a small file system is made on Linux only")
	return ""
}
