package loopback

import (
	"net"
	"net/netip"
	"os"
	"strings"
)

// HostID names the kernel and the network namespace of the caller: those who have
// the same one mean the same by 127.0.0.1. It is empty where that cannot be known.
// It is no secret, and proves nothing of who shows it.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	// Not that of /proc/self, which is the main thread: that may have become one which is in a
	// machine's network, and then it stays so while the process lives.
	namespace, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// OnThisHost reports whether an address, host:port, is one of this host's own: what
// answers there runs here.
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
