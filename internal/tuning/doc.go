// Package tuning adjusts a server process's OOM score, which its children must not inherit, its
// memory limit, and the frequency of its garbage collection.
package tuning

// OOM scores of servers; see proc(5). The lower a process's score, the later the kernel
// kills it. A process with the score -1000 is never killed.
const (
	OOMCompanion = -900 // a supervisor or keeper; if it is killed, machines stop or their output is lost
	OOMDaemon    = -500 // a worker's daemon, which is restarted if it is killed
)
