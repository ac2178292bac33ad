package containerdtest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the containerd of this test process, started on first use.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Start returns the containerd that the tests of this process share. TestMain must call
// [Main]. A test that kills containerd must use [New] instead. Start skips the test if the
// host cannot run containerd.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if why := missing(); why != "" {
		tb.Skip("containerd is not available for this test: " + why)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = create()
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server
}

// Main runs a package's tests and stops their shared containerd. It returns the exit code, which is
// nonzero if tests failed or containers left something on the host.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return code
	}
	for _, what := range shared.server.close() {
		fmt.Fprintln(os.Stderr, "left behind by the tests' containers:", what)
		code = max(code, 1)
	}
	shared.server = nil
	return code
}
