//go:build race

package view

// raceEnabled reports whether the race detector is active. It makes SQLite about 30 times slower, so there are fewer
// histories and not every commit is killed.
const raceEnabled = true
