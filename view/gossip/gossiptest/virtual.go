package gossiptest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Virtual runs a test in a bubble of virtual time. At the end it waits until memberlist's probes
// in progress have finished.
func Virtual(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // runs last
		test(t)
	})
}
