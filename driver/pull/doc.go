// Package pull is the driver for image "pull": machines are jobs that somebody
// else fetches and runs. A client that asks for work, a poller, holds a call of
// [Driver.Next] open; those calls are the driver's only capacity. How they come
// over the network is package gateway's business.
//
// # Promises
//
//   - Start offers the task to one poller at a time and returns when somebody
//     has claimed it. When no one waits it fails at once (CodeInsufficient):
//     there is no queue. A poller that does not claim what it was offered, or
//     left before it could be told, costs time only: the offer goes to another.
//   - One claim wins. It is on disk before it is answered, so that a daemon
//     that is killed knows of it afterwards; its end may be told to the next.
//   - A job ends once, by whichever comes first: its poller says how it ended,
//     or gives it back; or it is given up, with code -1 and why. That happens
//     when it was asked to end and its poller did not say so in time, and when
//     nothing was heard of its poller for Config.Lost. What the poller says
//     afterwards is refused. The program may then still run where the poller
//     is: no one here can know.
//   - A job that is claimed and never begun (the claim's answer was lost) is
//     given up likewise; it is not run twice by us.
//
// # Tickets
//
// All pollers show the gateway the same token. Each job belongs to the [Ticket]
// that it was claimed with, a registered host and its jobs to that of its first
// registration: another ticket ends nothing, is no sign of life, and gets no
// work of that host. The record of a job has the ticket's hash, so that this
// survives the daemon.
//
// # Signs of life
//
// A poller that holds [Driver.Cancellations] open for a job is alive, and so is
// a host that holds Next open for the jobs that it has. Else a sign of life is
// good for Config.Lost. Who asks about a job that is over, or was never heard
// of, is told to end it: a cancellation cannot be missed.
//
// # Hosts
//
// A poller that has registered as a host says how large it is. It is offered
// what fits into that, less what it has; of several the one that it fills best.
// Hosts are forgotten with the daemon, the jobs that they have are not: who is
// told that it is not known registers again.
//
// # What there is not
//
// Signal, Exec and Usage are CodeFailedPrecondition: we do not stand beside the
// program. Logs gives the output that came with the job's end. The suite of
// package drivertest is not for this driver: it looks for process ids, signals
// and streams of output, which a poller that may be a shell loop does not give.
//
// # State and locks
//
// Everything is under Driver.mu, which is not held over I/O. A file per machine
// has what was claimed of it (file.go); a job in a phase that is being written
// down (claiming, ending) is changed by the writer alone. Next, Start, Stop,
// Wait, Logs and Cancellations run in their callers' goroutines; Run gives up
// the lost.
package pull
