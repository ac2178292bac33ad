// Package gateway lets any HTTP client be a worker: a shell loop
// with curl, a host behind a firewall that only dials out. It is a thin adapter on
// a worker whose driver of image pull (package driver/pull) hands out jobs, and
// on that worker's own claims: its store stays the only truth, and a job is a
// machine like any other, which brokers list, stop and order, too.
//
// Three sides speak JSON below /sched:
//
//	pollers  GET jobs, POST claim/{name}, POST release/{name}, GET cancellations
//	hosts    POST register, GET assigned, POST started/{name}, POST stopped/{name}
//	clients  POST submit, GET status/{name}, POST cancel/{name}
//
// GETs but status wait (?wait=, at most a minute) and answer 204 when nothing
// came. Open waits are the gateway's capacity: a submit that finds none is
// refused at once.
//
// Jobs that were submitted here are machines of the default app. Once ended
// they are kept for a while, for status, then Run destroys them; until
// then their name may be used again, which destroys them earlier.
//
// Who may connect is not decided here: see internal/admission.
package gateway
