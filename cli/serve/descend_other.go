//go:build !linux

package serve

import "time"

// adoptOrphans does nothing: only Linux has it. The servers end by their life
// line.
func adoptOrphans() {}

// inUse does not know.
func inUse(string) bool { return false }

// killDescendants finds nothing to kill.
func killDescendants(_, _ time.Duration) int { return 0 }
