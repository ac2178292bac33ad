// Package gossiptest runs groups of members for tests and benchmarks. The members communicate
// either through loopback sockets ([Loopback]) or through an in-memory network ([Memory]), which
// can lose, delay and block packets, and is suitable for testing/synctest bubbles.
package gossiptest
