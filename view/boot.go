package view

import (
	"os"
	"strings"
)

// bootID identifies the host's current boot. It returns "" if the kernel does not provide an ID.
// Without an ID, a server whose last commits were lost in a host crash notices the loss only when
// gossip delivers transactions of its own that it no longer has.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
