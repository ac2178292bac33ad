// Package servertest runs servers as processes in tests. It builds the program once, starts
// single servers or a whole "bourse dev", waits until they are ready, kills and restarts them,
// and stops them when the test ends.
package servertest
