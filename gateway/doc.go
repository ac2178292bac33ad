// Package gateway lets HTTP clients run jobs, for example a shell loop with curl, or a host
// behind a firewall that can only dial out. It adapts a worker whose driver for image "pull"
// (package driver/pull) hands out jobs, and submits orders to the same worker. A job is a machine
// like any other: it is in the worker's store, and brokers can order, list and stop it, too.
//
// The API consists of JSON below /sched, for three groups of callers:
//
//	pollers  GET jobs, POST claim/{name}, POST release/{name}, GET cancellations
//	hosts    POST register, GET assigned, POST started/{name}, POST stopped/{name}
//	clients  POST submit, GET status/{name}, POST cancel/{name}
//
// All GET requests except status wait (?wait=, at most a minute) and reply with status 204 if
// there is nothing to report. The gateway's capacity is the number of waiting calls. A submission
// is refused immediately if no call is waiting.
//
// Submitted jobs are machines of the default app. Ended jobs remain available to status requests
// for Config.Keep, and then Run destroys them. Reusing the name of an ended job destroys it
// earlier.
//
// Access control is the caller's task: see internal/admission.
package gateway
