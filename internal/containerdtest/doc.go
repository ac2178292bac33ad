// Package containerdtest runs a real containerd for tests and builds images for it
// without a network.
//
// Start returns the containerd that the tests of a process share. Main, which TestMain calls, stops
// this containerd, and fails the run if containers left anything on the host. New returns a
// separate containerd that a test may kill and restart.
//
//	func TestMain(m *testing.M) { os.Exit(containerdtest.Main(m)) }
//
//	s := containerdtest.Start(t)
//	ref := s.Import(t, "bourse", "test.local/busybox", containerdtest.Busybox(t))
//
// The socket, root and state of containerd are in a temporary directory. The sockets of shims and
// the state of runc are in containerd's default locations, so concurrent test processes should use
// different container ids. The server stops with the test process, but running containers do not: a
// test must destroy the containers that it started.
package containerdtest
