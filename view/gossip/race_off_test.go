//go:build !race

package gossip_test

const (
	manyMembers = 100
	manyViews   = 100
	simSeeds    = 4
	simSteps    = 60
)
