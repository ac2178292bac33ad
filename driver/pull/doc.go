// Package pull implements the driver for image "pull": machines are jobs that pollers fetch and
// run. A poller is a client that requests work by keeping a call of [Driver.Next] open. The
// driver's capacity is the number of open calls. Package gateway provides these calls over the
// network.
//
// # Guarantees
//
//   - Start offers the task to one poller at a time and returns when a poller has claimed it.
//     If no poller is waiting, Start fails at once with CodeInsufficient, because there is no
//     queue. If a poller does not claim its offer, or disconnects before it receives the offer,
//     the job is offered to another poller.
//   - Only one claim succeeds. The claim is on disk before it is answered, so it survives if
//     the daemon is killed, and the next daemon accepts the report of the job's end.
//   - A job ends only once: its poller reports its end or returns the job, or the driver gives
//     the job up, with code -1 and a reason. The driver gives a job up if its poller does not
//     report its end in time after a cancellation, or shows no sign of life for Config.Lost. It
//     then refuses later reports from the poller. It cannot determine whether the program is
//     still running at the poller.
//   - A job that is claimed but never started, because the answer to the claim was
//     lost, is given up in the same way. The driver does not run it again.
//
// # Tickets
//
// All pollers use the same gateway token. Each job belongs to the [Ticket] with which it was
// claimed, and a registered host and its jobs belong to the ticket of its first registration. A
// caller with another ticket can neither end the job nor keep it alive, and receives no work for
// that host. This still applies after a restart of the daemon, because the record of a job
// contains the ticket's hash.
//
// # Signs of life
//
// An open call of [Driver.Cancellations] is a continuous sign of life for the jobs that it names. A host's open call of
// Next is such a sign for all of the host's jobs. Any other sign of life is valid for the duration Config.Lost. If a
// call of Cancellations names a job that has ended or is unknown, the call's result includes the job, so a cancellation
// cannot be missed.
//
// # Hosts
//
// A poller that registers as a host reports its size. It is offered jobs that fit into its unused
// capacity. If several hosts have room for a job, the driver chooses the host that the job fits
// best. A restarted daemon still knows the jobs of its hosts, but not the hosts: a host whose call
// fails with not_found must register again.
//
// # Unsupported operations
//
// Signal, Exec and Usage return CodeFailedPrecondition, because the program runs elsewhere. Logs
// returns the output that was reported with the job's end. The test suite in package drivertest
// does not apply to this driver, because it requires process ids, signals and output streams. A
// poller, which may be a shell loop, does not provide them.
//
// # State and locks
//
// Driver.mu guards all state and is not held during I/O. Each machine has a file with its claim (file.go). While a
// job is being written (phases claiming and ending), only the writer changes it. Next, Start, Stop, Wait, Logs and
// Cancellations run in their callers' goroutines; Run gives up lost jobs.
package pull
