package gossiptest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Virtual runs a test in a bubble of virtual time. At its end memberlist's own
// goroutines, of probes in progress, get the time to finish.
func Virtual(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // runs last
		test(t)
	})
}
