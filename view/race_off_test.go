//go:build !race

package view

// raceEnabled tells whether the race detector slows things down.
const raceEnabled = false
