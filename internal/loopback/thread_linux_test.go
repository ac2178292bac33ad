package loopback_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/internal/loopback"
)

// Lock the main thread, so that it runs only TestMain.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // after init, another goroutine may run on the main thread

// before is the HostID before the main thread enters a new network namespace. leaving is the
// error of entering it.
var (
	before  string
	leaving error
)

func TestMain(m *testing.M) {
	before = loopback.HostID()
	leaving = unix.Unshare(unix.CLONE_NEWNET)
	os.Exit(m.Run())
}

// HostID does not depend on the network namespace that the main thread has entered for a machine.
func TestHostIDIgnoresTheMainThread(t *testing.T) {
	if leaving != nil {
		t.Skip("the main thread cannot leave the network: ", leaving)
	}
	if after := loopback.HostID(); after != before {
		t.Errorf("HostID returned %q, and %q before", after, before)
	}
}
