//go:build !linux

package serve

import "time"

// adoptOrphans does nothing, because only Linux supports it. Servers stop when their
// standard input is closed.
func adoptOrphans() {}

// inUse always returns false, because it cannot find out.
func inUse(string) bool { return false }

// killDescendants does nothing.
func killDescendants(_, _ time.Duration) int { return 0 }
