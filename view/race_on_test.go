//go:build race

package view

// raceEnabled reports whether the race detector is active. It makes SQLite about 30 times
// slower, so tests use fewer histories and do not crash at every commit.
const raceEnabled = true
