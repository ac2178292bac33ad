//go:build !race

package view

// raceEnabled reports whether the race detector is active.
const raceEnabled = false
