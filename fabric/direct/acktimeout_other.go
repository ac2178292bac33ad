//go:build !linux

package direct

import "syscall"

// setAckTimeout does nothing. On this platform, the kernel decides how long data may remain
// unacknowledged.
func setAckTimeout(string, string, syscall.RawConn) error { return nil }
