//go:build !race

package replication_test

const (
	manyViews = 100
	simSeeds  = 4
	simSteps  = 60
)
