//go:build race

package view

// raceEnabled tells that the race detector slows SQLite down some thirty
// times: the histories are fewer then, and not every commit is killed.
const raceEnabled = true
