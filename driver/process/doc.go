// Package process implements the driver for image "host", which runs machines as ordinary
// processes of the host. It requires neither root privileges nor other software. With root
// privileges, it also enforces limits through cgroups.
//
// # Two processes
//
// A Driver runs in the worker's daemon and may be killed at any moment. State that must survive
// is held by a small separate process, the supervisor. Each directory has one supervisor.
// Driver.Recover connects to the running supervisor or starts one in a new session. The
// supervisor is the parent of the tasks: it copies their output to log files, reaps them, and
// keeps their exits until the daemon discards them. The supervisor has no access to the
// machines' records, and the daemon does not handle pipes and signals.
//
//	daemon: Driver ── link ──▶ socket ──▶ session : supervisor ── fork ──▶ tasks
//	          mirror ◀── exits ──┘            table, logs ◀── output ──┘
//	          reads the log files itself
//
// # Guarantees
//
//   - If the daemon exits, its tasks continue to run, and no exit or log line is
//     lost. Before a new daemon lists the tasks, the old daemon's pending requests
//     are canceled.
//   - A file lock ensures that a directory has only one supervisor. The supervisor
//     serves only the newest daemon; the previous one is notified and does not
//     reconnect.
//   - A failed start leaves nothing behind. When a task ends, all processes in its process
//     group and its cgroup are killed before the exit is reported. Without cgroups, the process
//     group and orphans with the task's mark are killed.
//   - When an exit is reported, the output is in the log. An escaped process that
//     keeps the output open delays this by up to half a second.
//   - A killed supervisor is replaced. Its tasks' processes are found (by cgroup,
//     and by BOURSE_TASK in their environment) and killed, and the tasks end with
//     code -1. The daemon sends the exits that it knows to the new supervisor. If
//     daemon and supervisor are killed together, their successors do not know these
//     tasks.
//   - Labels contains only limits that the host can enforce. Without cgroups there
//     are none: see cgroup.None.
//   - A task's limits are set before its program is executed: see cgroup.
//   - A task with its own network or mounts runs in its own namespaces, as do
//     commands executed in it; see isolation. No other process ever enters these
//     namespaces.
//   - A frozen task's processes do not run until they are thawed, even if the
//     daemon restarts. They can be killed without being thawed first.
//   - If a terminal's user disconnects, the command receives SIGHUP and is then
//     killed together with its session.
//   - The supervisor exits when no daemon is connected and it has no task.
//
// # State, goroutines and locks
//
// Supervisor: supervisor.mu guards the table of machines (table.go). Each machine's log
// (driver/logs) has its own mutex, taken after supervisor.mu. children.forkLock and children.mu
// cover the time between a fork and its registration (reap.go). Goroutines: the main loop
// (signals, reaping, idleness), one that accepts connections, and one for each connection, request
// in progress and output stream. An idle task costs two parked goroutines and three descriptors,
// or about 15 KiB.
//
// Driver: Only the goroutine that reads the link changes the mirror, a copy of the supervisor's
// table. It applies events and answers in the order in which they arrive, so that an exit is never
// overwritten. Inspect and Wait use the mirror. The same goroutine creates a new link when one
// breaks.
//
// # Trade-offs
//
//   - The hot path is one round trip and one fork. A log file is created when its
//     first byte is written. sched_linux.go explains why a thread changes its
//     scheduling before a fork.
//   - With cgroup v1 a start waits 10 to 20 ms for the kernel and costs a thread,
//     because a child is created in the groups of the thread that forks it.
//   - Log lines are not synced to disk: they survive the crash of any process, but
//     not a crash of the host. If the supervisor is killed, its tasks are lost, and
//     so is the output that it has read but not written.
//   - A task with its own namespaces costs a thread for its start and for every
//     exec, because a thread that has been in a mount namespace cannot leave it.
//     Other tasks cost nothing.
//   - A fork copies the table of descriptors, so a start takes longer the more tasks
//     are running: about 0.4 ms more per thousand tasks on two cores.
//   - On systems other than Linux there are no cgroups and no /proc: a process that
//     leaves its group is not found.
package process
