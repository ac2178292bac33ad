// Package deploy tests plans with real servers: a broker, workers, a proxy and machines
// that are processes of this test's program. The proxy receives requests during all tests.
package deploy
