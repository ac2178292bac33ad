//go:build race

package replication_test

// The sizes are smaller under the race detector.
const (
	manyViews = 16
	simSeeds  = 2
	simSteps  = 30
)
