//go:build !linux

package serve

import "time"

// adoptOrphans does nothing, because only Linux supports it. On other systems, servers
// stop when their standard input is closed.
func adoptOrphans() {}

// inUse always returns false, because only Linux lists processes in /proc.
func inUse(string) bool { return false }

// killDescendants does nothing.
func killDescendants(_, _ time.Duration) int { return 0 }
