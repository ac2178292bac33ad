//go:build unix

package admission

import (
	"strconv"
	"syscall"
)

// inode returns a file's inode number.
func inode(of any) string {
	if s, ok := of.(*syscall.Stat_t); ok {
		return strconv.FormatUint(s.Ino, 10)
	}
	return ""
}
