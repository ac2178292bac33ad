//go:build race

package gossip_test

// manyMembers is smaller under the race detector, because the traffic among 100 members takes
// half a minute of its processor time.
const manyMembers = 40
