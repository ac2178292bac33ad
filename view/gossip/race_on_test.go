//go:build race

package gossip_test

// manyMembers is smaller under the race detector: every member sends to every
// other about all, which takes half a minute of its processor time for 100.
const manyMembers = 40
