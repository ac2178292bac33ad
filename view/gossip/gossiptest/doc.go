// Package gossiptest runs groups of members for tests and benchmarks. The members use an
// in-memory network that can lose, delay and block packets ([Memory], for testing/synctest
// bubbles), or loopback sockets ([Loopback]).
package gossiptest
