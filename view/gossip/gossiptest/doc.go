// Package gossiptest runs groups of members for tests and benchmarks: on a
// network in memory that loses, delays and cuts ([Memory]; made for
// testing/synctest bubbles), or on sockets of loopback ([Loopback]).
package gossiptest
