// Package gateway lets HTTP clients run jobs, for example a shell loop with curl, or a host behind
// a firewall that can only dial out. It is the HTTP interface of a worker whose driver for the
// image "pull" (package driver/pull) hands out jobs. It also submits orders to that worker. A job
// is an ordinary machine: the worker has its record, and brokers can also order, list and stop it.
//
// The API uses JSON and is served below /sched, for three groups of callers:
//
//	pollers  GET jobs, POST claim/{name}, POST release/{name}, GET cancellations
//	hosts    POST register, GET assigned, POST started/{name}, POST stopped/{name}
//	clients  POST submit, GET status/{name}, POST cancel/{name}
//
// All GET requests except status are long polls: they wait for up to ?wait=, which is at most a
// minute, and reply with status 204 if there is nothing to report. The gateway's capacity is the
// number of calls that are waiting for jobs. If there are none, a submission is refused
// immediately.
//
// Submitted jobs are machines of the default app. Ended jobs remain available to status requests
// for the duration Config.Keep; after that, Run destroys them. A submission that reuses an ended
// job's name destroys that job earlier.
//
// The package does not control access; its callers must do so (see internal/admission).
package gateway
