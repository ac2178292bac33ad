//go:build race

package gossip_test

// The sizes are smaller under the race detector: everybody tells everybody of
// everybody, which takes half a minute of its processor time for 100.
const (
	manyMembers = 40
	manyViews   = 16
	simSeeds    = 2
	simSteps    = 30
)
