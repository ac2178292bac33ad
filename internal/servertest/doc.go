// Package servertest runs servers of the program as processes in tests. It builds the
// program once, starts single servers or a whole "bourse dev", waits until they are ready,
// kills and restarts them, and stops them when the test ends.
package servertest
