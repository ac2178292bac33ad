// Package warm implements frames, the cheap protocol between a worker and the
// program of a machine that is warm for a task (docs/tasks.md). Both ends are
// here: a program serves with [Serve], a worker calls with [Conn].
//
// One connection carries many calls at once, answered in any order; how is in
// internal/mux, with what it promises. Nothing on the wire makes either side keep
// more than bourse.MaxPayload, bourse.MaxAnswer and its own concurrency allow.
//
// A Conn has one goroutine, which ends with the connection, and at times one that
// writes what the program does not read at once. All goroutines of Serve, and
// with them all handlers, have ended when it returns.
package warm
