// Package pull implements the driver for image "pull": machines are jobs that pollers fetch and run. A poller is a
// client that asks for work by holding a call of [Driver.Next] open; those calls are the driver's only capacity.
// Package gateway provides these calls over the network.
//
// # Guarantees
//
//   - Start offers the task to one poller at a time and returns when a poller has
//     claimed it. If no poller waits, it fails at once (CodeInsufficient): there is
//     no queue. A poller that does not claim its offer, or disconnects before it
//     receives the offer, only costs time: the offer goes to another poller.
//   - One claim wins. It is on disk before it is answered, so that it survives a
//     killed daemon, and the next daemon accepts the report of the job's end.
//   - A job ends once, with the first of these events: its poller reports its end or
//     returns it; or it is given up, with code -1 and a reason. It is given up if
//     its poller does not report its end in time after a cancellation, or if the
//     poller shows no sign of life for Config.Lost. Later reports of the poller are
//     refused. The driver cannot determine whether the program is still running at
//     the poller.
//   - A job that is claimed but never started, because the answer to the claim was
//     lost, is given up in the same way. The driver does not run it again.
//
// # Tickets
//
// All pollers use the same gateway token. Each job belongs to the [Ticket] with which it was
// claimed, and a registered host and its jobs belong to the ticket of its first registration. A
// caller with another ticket can neither end the job nor keep it alive, and gets no work for that
// host. This still applies after a restart of the daemon, because the record of a job contains the
// ticket's hash.
//
// # Signs of life
//
// An open call of [Driver.Cancellations] is a continuous sign of life for the jobs that it names,
// and so is a host's open call of Next for all jobs of the host. Any other sign of life is valid
// for Config.Lost. A caller that asks about a job that has ended or is unknown is told to end it,
// so a cancellation cannot be missed.
//
// # Hosts
//
// A poller that registers as a host reports its size. It is offered jobs that fit into the unused part; among several
// hosts, the one that the job fits best is chosen. A restart of the daemon forgets hosts but not their jobs. A host
// that is told that it is unknown registers again.
//
// # Unsupported operations
//
// Signal, Exec and Usage return CodeFailedPrecondition, because the program runs elsewhere. Logs returns the output
// that was reported with the job's end. The test suite in package drivertest does not apply to this driver, because
// it requires process ids, signals and output streams, which a poller, possibly a shell loop, does not provide.
//
// # State and locks
//
// Driver.mu guards all state and is not held during I/O. Each machine has a file with its claim (file.go). While a
// job is being written (phases claiming and ending), only the writer changes it. Next, Start, Stop, Wait, Logs and
// Cancellations run in their callers' goroutines; Run gives up lost jobs.
package pull
