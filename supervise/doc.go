// Package supervise runs a few commands of this host side by side, with no
// server: each is started, its output is passed on line by line, and its restart
// policy sees to what follows its end, in the words and with the backoff of a
// policy decides what follows its end, in the words and with the backoff of a
//
// The tasks run through a driver that the caller has made and recovered, and
// shuts down afterwards: what is left of a task then ends with it. Nothing is
// written down; a Run that is killed leaves it to the driver to end
// what it has started.
//
// Run has two goroutines per task: one that starts it and waits for its end,
// and one that follows its output.
package supervise
