// Package deploy tests plans with real servers: a broker, workers, a proxy, and machines that run
// this test's own program. The proxy receives requests during all tests.
package deploy
