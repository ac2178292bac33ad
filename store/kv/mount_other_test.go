//go:build !linux

package kv

import "testing"

// mountSmall returns a directory on a small file system.
func mountSmall(t *testing.T) string {
	t.Helper()
	t.Skip("small file systems can be created only on Linux")
	return ""
}
