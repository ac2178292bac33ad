// Package gossiptest runs groups of members for tests and benchmarks. The members use either
// [Memory], an in-memory network for testing/synctest bubbles that can lose, delay and block
// packets, or loopback sockets ([Loopback]).
package gossiptest
