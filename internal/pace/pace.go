// Package pace sets how Go's runtime goes about its own work in the servers.
package pace

import (
	"os"
	"runtime/debug"
)

// collectAt is how far the heap grows, in percent of what lives, before it is
// collected. A server's heap is a few MiB: collecting it more often costs
// latency and saves nothing.
const collectAt = 400

// Server has this process collect its heap and watch its scheduler as a server
// does. $GOGC wins.
func Server() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	RelaxMonitor()
}
