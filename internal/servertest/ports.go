package servertest

import (
	"fmt"
	"net"
	"testing"
)

// Where the ports of machines are taken from, below those that the system gives to who asks for
// any, and outside of the range that a worker has by default.
const (
	firstPort      = 9000
	lastPort       = 19999
	portsPerWorker = 250
)

// ports returns a range of ports for the machines of one worker, FIRST-LAST, that no other
// worker has which a test of this host has made, in whatever process: a machine that is stopped
// keeps its port, and would find another's machine there. It is the test's until its end: a
// listener at the port before the first one says so.
func ports(tb testing.TB) string {
	tb.Helper()
	for hold := firstPort; hold+portsPerWorker-1 <= lastPort; hold += portsPerWorker {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", hold))
		if err != nil {
			continue
		}
		tb.Cleanup(func() { _ = l.Close() }) // nothing was accepted
		return fmt.Sprintf("%d-%d", hold+1, hold+portsPerWorker-1)
	}
	tb.Fatalf("no range of %d ports in %d-%d is free", portsPerWorker, firstPort, lastPort)
	return ""
}
