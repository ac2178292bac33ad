//go:build !race

package view

// raceEnabled reports whether the race detector slows things down.
const raceEnabled = false
