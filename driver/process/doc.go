// Package process implements the driver for image "host", which runs machines as ordinary processes
// on the host. It does not require root privileges or other software. With root privileges, it also
// enforces limits through cgroups.
//
// # Two processes
//
// A Driver runs in the worker's daemon, which may be killed at any moment. A small separate
// process, the supervisor, holds the state that must survive. Each directory has one supervisor.
// Driver.Recover connects to the running supervisor or starts one in a new session. The supervisor
// is the parent of the tasks' processes: it copies their output to log files, reaps them, and keeps
// their exits until the daemon discards them. The supervisor does not access the machines' records,
// and the daemon does not handle pipes or signals.
//
//	daemon: Driver ── link ──▶ socket ──▶ session : supervisor ── fork ──▶ tasks
//	          mirror ◀── exits ──┘            table, logs ◀── output ──┘
//	          reads the log files itself
//
// # Guarantees
//
//   - If the daemon exits, its tasks continue to run, and their exits and output are not lost.
//     Before a new daemon lists the tasks, the old daemon's pending requests are canceled.
//   - A file lock ensures that a directory has only one supervisor. The supervisor
//     serves only the newest daemon; the previous one is notified and does not
//     reconnect.
//   - After a failed start, everything that was created for the task is removed. When a task ends,
//     all processes in its process group and its cgroup are killed before the exit is reported.
//     Without cgroups, the processes in the process group and orphans with the task's mark are
//     killed.
//   - When an exit is reported, the output is in the log. If another process still holds the output
//     open, the exit is reported up to half a second later.
//   - If a supervisor is killed, it is replaced. Its tasks' processes are found (by cgroup, and by
//     BOURSE_TASK in their environment) and killed, and the tasks end with code -1. The daemon
//     sends the exits that it knows to the new supervisor. If the daemon and the supervisor are
//     killed together, information about these tasks is lost.
//   - Labels contains only limits that the host can enforce. Without cgroups, it does not contain
//     any limits; see cgroup.None.
//   - A task's limits are set before its program is executed; see package cgroup.
//   - A task with its own network or mounts runs in its own namespaces; see isolation. Commands
//     executed in the task enter these namespaces, but other processes do not.
//   - A frozen task's processes do not run until the task is resumed, even if the daemon
//     restarts. They can be killed without being resumed first.
//   - If a terminal's user disconnects, the command receives SIGHUP and is then
//     killed together with its session.
//   - The supervisor exits when it has no tasks and no daemon is connected.
//
// # State, goroutines and locks
//
// Supervisor: supervisor.mu guards the table of machines (table.go). Each machine's log (driver/logs) has its own
// mutex, which is locked after supervisor.mu. children.forkLock and children.mu prevent a child from being reaped
// before it is registered (reap.go). One goroutine runs the main loop (signals, reaping, idleness) and one accepts
// connections. In addition, there is one for each connection, each request in progress and each output stream. An idle
// task costs two parked goroutines and three descriptors, and about 15 KiB of memory.
//
// Driver: Only the goroutine that reads the link changes the mirror, a copy of the supervisor's
// table. It applies events and answers in the order in which they arrive, so that an exit is never
// overwritten. If the link breaks, the same goroutine creates a new link. Inspect and Wait read the
// mirror.
//
// # Trade-offs
//
//   - A start takes one round trip to the supervisor and one fork. A log file is created only when
//     there is output. sched_linux.go explains why a thread requests a short time slice before a fork.
//   - With cgroup v1, a start needs a separate thread, because a child is created in the cgroups
//     of the thread that forks it. Moving the thread takes the kernel 10 to 20 ms.
//   - Log lines are not synced to disk, so they survive a crash of any process, but not a crash of
//     the host. If the supervisor is killed, its tasks are lost, and so is output that it has read
//     but not yet written.
//   - A task with its own namespaces needs a new thread for its start and for every exec, because
//     a thread cannot leave a mount namespace that it has entered. Other tasks do not need extra
//     threads.
//   - A fork copies the table of file descriptors. The more tasks are running, the longer a start
//     therefore takes: about 0.4 ms more for each thousand tasks on two cores.
//   - Systems other than Linux lack cgroups and /proc, so processes that leave their process group
//     are not found there.
package process
