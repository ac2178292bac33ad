package view

import (
	"os"
	"strings"
)

// bootID identifies the host's current boot. It returns "" if the kernel does not provide an ID.
// Without an ID, this server detects a host crash only if gossip contains transactions of its
// own stream that it has lost.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
