// Package deploy tests plans with real servers: a broker, workers, a proxy and machines that
// are processes of this test's program. Requests come through the proxy all the while.
package deploy
