// Package gateway lets HTTP clients run jobs. Such a client may be a shell loop with curl, or a host behind a firewall
// that can only dial out. The gateway runs on a worker. It serves the jobs of the worker's driver for the image "pull"
// (package driver/pull), and submits clients' orders to the worker. A job is an ordinary machine: its record is on the
// worker, and brokers can order, list and stop it as well.
//
// The API uses JSON and is served below /sched, for three groups of callers:
//
//	pollers  GET jobs, POST claim/{name}, POST release/{name}, GET cancellations
//	hosts    POST register, GET assigned, POST started/{name}, POST stopped/{name}
//	clients  POST submit, GET status/{name}, POST cancel/{name}
//
// All GET requests except status are long polls: they wait for up to ?wait=, which is at most a minute, and reply with
// status 204 if there is nothing to report. The gateway's capacity is the number of calls that are waiting for jobs. If
// no call is waiting, a submission is refused immediately.
//
// Submitted jobs are machines of the default app. Once Config.Keep has passed since a job ended, Run destroys the job,
// and clients can no longer query its status. An ended job is destroyed earlier if a client submits a job with the same
// name.
//
// The package does not check permissions; its callers must do so (see internal/admission).
package gateway
