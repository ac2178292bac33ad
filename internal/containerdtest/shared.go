package containerdtest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the containerd of this test process, started when first asked for.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Start returns the containerd that the tests of this process share. A test that
// kills it takes New instead. The process's TestMain has to call Main. The
// test is skipped, with the reason, on a host that cannot run one.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if why := missing(); why != "" {
		tb.Skip("no containerd for this test: " + why)
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

// Main runs a package's tests and ends the containerd that they shared. It
// returns the exit code: not 0 also when the tests have left something
// of containers behind.
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
