// Package supervise runs a few commands of this host side by side, with no
// server: each is started, its output is passed on line by line, and its restart
// policy sees to what follows its end, in the words and with the backoff of a
// worker's machines. [Read] reads the list of them, [Run] runs it.
//
// The tasks run through a driver that the caller has made and recovered, and
// shuts down afterwards: whatever of a task is left then goes with it. Nothing is
// written down; a Run that is killed leaves it to the driver's machinery to end
// what it has started.
//
// Run has two goroutines per task: one that starts it and waits for its end,
// and one that follows its output.
package supervise
