// Package servertest runs the servers of the program as processes of a test's
// own: it builds the program once, starts servers or a whole "bourse dev",
// waits until they are ready, kills and restarts them, and ends them with the
// test.
package servertest
