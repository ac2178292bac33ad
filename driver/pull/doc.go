// Package pull implements the driver for image "pull": machines are jobs that pollers fetch and run. A poller is a
// client that requests work by keeping a call to [Driver.Next] open. The driver's capacity is the number of open calls.
// Package gateway provides these calls over the network.
//
// # Guarantees
//
//   - Start offers the task to one poller at a time and returns when a poller has claimed it.
//     There is no queue: if no poller is waiting, Start returns CodeInsufficient immediately. If
//     a poller does not claim its offer, or disconnects before it receives the offer, the job is
//     offered to another poller.
//   - Only one claim succeeds. It is written to disk before it is answered. If the daemon is then
//     killed, the next daemon reads the claim from disk and accepts the report that the job has
//     ended.
//   - A job ends only once: its poller reports its end or returns the job, or the driver gives up the job, with code -1
//     and a reason. The driver gives up a job if its poller does not report the end in time after a cancellation, or
//     does not send a heartbeat for Config.Lost. After that, the driver refuses reports from the poller. It cannot
//     determine whether the program is still running.
//   - If a claimed job is never started, because the answer to the claim was lost, the driver
//     gives up the job in the same way. It does not offer the job again.
//
// # Tickets
//
// All pollers use the same gateway token. Each job belongs to the [Ticket] that was used to claim it. A registered host
// and its jobs belong to the ticket that was used when the host was first registered. Callers with another ticket
// cannot end the job, keep it alive, or receive work for the host. This is also true after a restart of the daemon,
// because the record of a job contains the ticket's hash.
//
// # Heartbeats
//
// A pending call to [Driver.Cancellations] counts as a continuous heartbeat for the jobs that it names. A host's
// pending call to [Driver.Next] counts as a continuous heartbeat for all of the host's jobs. After any other heartbeat,
// the driver waits for Config.Lost before it gives up the job. If a call to Cancellations names a job that has ended or
// is unknown, the result contains that job, so pollers cannot miss a cancellation.
//
// # Hosts
//
// A poller that registers as a host reports its size. It is offered jobs that fit into its unused capacity. If several
// hosts have room for a job, the driver chooses the host on which the least capacity would remain unused. After a
// restart, the daemon has records of the hosts' jobs, but not of the hosts. A host whose call fails with not_found must
// register again.
//
// # Unsupported operations
//
// Signal, Exec, Freeze and Usage return CodeFailedPrecondition, because the program does not run on this host. Logs
// returns the output that was reported with the job's end. This driver is not tested with the suite in package
// drivertest, because the suite requires process ids, signals and output streams, which a poller (possibly a shell
// loop) does not provide.
//
// # State and locks
//
// Driver.mu guards all state and is not held during I/O. Each machine's claim is stored in a file (file.go). While a
// job's file is being written (phases claiming and ending), only the writer changes the job. Next, Start, Stop, Wait,
// Logs and Cancellations run in their callers' goroutines. Run gives up lost jobs.
package pull
