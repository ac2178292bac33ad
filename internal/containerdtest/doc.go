// Package containerdtest runs a real containerd of its own for tests, and
// builds images for it without any network.
//
// Start gives the one that a test process shares; Main, which TestMain calls,
// ends it and fails the run when something of its containers is left on the
// host. New gives one that a test may kill and restart.
//
//	func TestMain(m *testing.M) { os.Exit(containerdtest.Main(m)) }
//
//	s := containerdtest.Start(t)
//	ref := s.Import(t, "bourse", "test.local/busybox", containerdtest.Busybox(t))
//
// Its socket, root and state are in a directory below the system's temporary
// one. Shims' sockets and runc's state are where containerd has them by
// default, so container ids should differ between test processes that run at
// the same time. The server dies with the test process; containers that run
// then do not, so a test destroys what it started.
package containerdtest
