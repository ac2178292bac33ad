package servertest

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// The range of ports that tests reserve for machines. It is below the system's ephemeral ports and
// outside of a worker's default range.
const (
	firstPort      = 9000
	lastPort       = 19999
	portsPerWorker = 250
)

// Ports reserves the ports from first to last until the test ends. Each worker needs its own range, because a stopped
// machine keeps its port. No other test on this host gets the same range, not even in another process: a listener on
// the port before the range marks it as taken. The kernel does not use these ports for outgoing connections.
func Ports(tb testing.TB) (first, last int) {
	tb.Helper()
	for hold := firstPort; hold+portsPerWorker-1 <= lastPort; hold += portsPerWorker {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", hold))
		if err != nil {
			continue
		}
		first, last = hold+1, hold+portsPerWorker-1
		if inUse(tb, first, last) {
			_ = l.Close() // no connection was accepted
			continue
		}
		tb.Cleanup(func() { _ = l.Close() }) // no connection was accepted
		return first, last
	}
	tb.Fatalf("no range of %d ports in %d-%d is free", portsPerWorker, firstPort, lastPort)
	return 0, 0
}

// inUse reports whether a program listens on a port of the range. Such a program may be left over from a killed
// test.
func inUse(tb testing.TB, first, last int) bool {
	for port := first; port <= last; port++ {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return true
		}
		_ = l.Close() // no connection was accepted
	}
	return false
}

// reserve binds the addresses of a stopped server if [Server.Settle] was called.
func (s *Server) reserve() {
	if s.settled {
		s.hold()
	}
}

// hold binds the addresses of a stopped server, so that the system does not use its ports for
// other programs' connections. It does not listen, so connections are refused. It skips addresses
// that cannot be bound, such as those in another namespace.
func (s *Server) hold() {
	for _, address := range []string{s.API, s.Addr} {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !at.Addr().Is4() {
			continue
		}
		syscall.ForkLock.RLock()
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err == nil {
			syscall.CloseOnExec(fd)
		}
		syscall.ForkLock.RUnlock()
		if err != nil {
			continue
		}
		s.held = append(s.held, fd)
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) // the server's own connections may still be closing
		_ = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
}

// letGo releases the addresses that [Server.hold] has bound.
func (s *Server) letGo() {
	for _, fd := range s.held {
		_ = syscall.Close(fd) // nothing was sent
	}
	s.held = nil
}
