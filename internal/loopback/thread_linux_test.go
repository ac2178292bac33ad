package loopback_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/internal/loopback"
)

// The main thread runs TestMain and nothing else.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // afterwards it may be another's

// What is so before and after the main thread has left for a network of its own.
var (
	before  string
	leaving error
)

func TestMain(m *testing.M) {
	before = loopback.HostID()
	leaving = unix.Unshare(unix.CLONE_NEWNET)
	os.Exit(m.Run())
}

// A process is where its goroutines are, whatever network its main thread has entered on
// behalf of a machine.
func TestIDIsNotThatOfTheMainThread(t *testing.T) {
	if leaving != nil {
		t.Skip("the main thread cannot leave the network: ", leaving)
	}
	if after := loopback.HostID(); after != before {
		t.Errorf("%q, before it was %q", after, before)
	}
}
