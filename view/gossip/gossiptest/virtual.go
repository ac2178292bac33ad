package gossiptest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Virtual runs a test in a bubble with virtual time. After the test, it waits for the memberlist
// probes that are still in progress.
func Virtual(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // this cleanup runs last
		test(t)
	})
}
