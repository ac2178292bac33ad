//go:build race

package gossip_test

// manyMembers is fewer under the race detector: everybody tells everybody of
// everybody, which takes half a minute of its processor time for 100.
const manyMembers = 40
