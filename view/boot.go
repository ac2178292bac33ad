package view

import (
	"os"
	"strings"
)

// bootID identifies the host's current boot. It returns "" if the kernel does not provide an ID.
// In that case, this server detects lost commits after a host crash only when gossip returns
// transactions of its own stream that it no longer has.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
