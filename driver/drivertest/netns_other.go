//go:build !linux

package drivertest

import "testing"

// Netns skips the test: only Linux has network namespaces.
func Netns(t *testing.T) string {
	t.Helper()
	needRoot(t)
	return ""
}

func hostNetworks(*testing.T) []string { return nil }

func needRoot(t *testing.T) {
	t.Helper()
	t.Skip("tasks with their own network or mounts require Linux")
}
