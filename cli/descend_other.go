//go:build !linux

package cli

import "time"

// adoptOrphans does nothing: only Linux has it. The servers end by their life
// line.
func adoptOrphans() {}

// killDescendants finds nothing to kill.
func killDescendants(_, _ time.Duration) int { return 0 }
