package loopback

import (
	"net"
	"net/netip"
	"os"
	"strings"
)

// HostID returns an ID for the combination of the caller's kernel and network namespace. Processes
// with the same ID share 127.0.0.1. It returns "" if the ID is unknown. The ID is not secret and
// does not authenticate the caller.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	// Do not use /proc/self: it describes the main thread, which may have entered a machine's network
	// namespace permanently.
	namespace, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// OnThisHost reports whether an address (host:port) is one of this host's own addresses.
func OnThisHost(address string) bool {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	addr := to.Addr().Unmap()
	if addr.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == addr {
				return true
			}
		}
	}
	return false
}
