package network

import (
	"bytes"
	"os"
	"path/filepath"
)

// forward enables packet forwarding for the whole host. Forwarding is never disabled again, because other programs may
// have come to rely on it.
//
// A host that forwards IPv6 ignores router advertisements unless accept_ra is 2, and could lose its default route.
// Therefore, forward sets accept_ra to 2 on each interface that currently accepts router advertisements.
func forward() error {
	if on, err := isOn("ipv4/ip_forward"); err != nil {
		return err
	} else if !on {
		if err := setting("ipv4/ip_forward").set("1"); err != nil {
			return err
		}
	}
	if on, err := isOn("ipv6/conf/all/forwarding"); on || err != nil {
		return err
	}
	interfaces, err := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	if err != nil {
		return err
	}
	for _, file := range interfaces {
		// Ignore errors, because an interface may have just disappeared.
		if value, err := os.ReadFile(file); err == nil && string(bytes.TrimSpace(value)) == "1" {
			_ = os.WriteFile(file, []byte("2"), 0)
		}
	}
	return setting("ipv6/conf/all/forwarding").set("1")
}

func isOn(s setting) (bool, error) {
	value, err := os.ReadFile(s.path())
	return string(bytes.TrimSpace(value)) == "1", err
}
