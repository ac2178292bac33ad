package view

import (
	"os"
	"strings"
)

// bootID names the present life of the host. It is "" where the kernel does
// not say: then a crash of the host goes unnoticed here, and is found out when
// gossip shows more of our stream than we have.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
