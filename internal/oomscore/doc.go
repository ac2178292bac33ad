// Package oomscore keeps the kernel, when memory runs out, from choosing the
// processes on which all machines of a host depend: it would end one that is
// small and whose end costs more than what it frees. Machines and other
// children do not inherit it.
package oomscore

// The scores of servers, see proc(5): the lower, the later the kernel chooses a
// process, and never at -1000.
const (
	Companion = -900 // of a supervisor or keeper: with it its machines end, or what they write stops
	Daemon    = -500 // of a worker's daemon: it comes back
)
