// Package tuning adjusts how the kernel and the Go runtime treat a server's process:
// its rank for the out-of-memory killer, which machines and other children don't
// inherit, and the pace of garbage collection.
package tuning

// OOM scores of servers, see proc(5): the lower the score, the later the kernel chooses
// the process, and never at -1000.
const (
	OOMCompanion = -900 // of a supervisor or keeper: without it machines end, or their output stops
	OOMDaemon    = -500 // of a worker's daemon, which is started again
)
