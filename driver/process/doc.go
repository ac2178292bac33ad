// Package process implements the driver for image "host", which runs machines as ordinary processes of the host. It
// requires neither root nor installed software. With root, it also enforces limits through cgroups.
//
// # Two processes
//
// A Driver lives in the worker's daemon and may be killed at any moment. Everything that must
// survive is in a supervisor, one small process per directory, which Driver.Recover finds or
// starts in a new session. The supervisor is the parent of the tasks: it copies their output to
// log files, reaps them, and keeps their exits until they are discarded. The supervisor does not
// know the machines' records, and the daemon does not handle pipes and signals.
//
//	daemon: Driver ── link ──▶ socket ──▶ session : supervisor ── fork ──▶ tasks
//	          mirror ◀── exits ──┘            table, logs ◀── output ──┘
//	          reads the log files itself
//
// # Guarantees
//
//   - If the daemon ends, tasks continue, and no exit or log line is lost. Before
//     a new daemon lists the tasks, the old one's pending requests are canceled.
//   - There is one supervisor per directory (a file lock) and one daemon per
//     supervisor (the newest; the previous one is notified and does not reconnect).
//   - A failed start leaves nothing behind, and neither does an ended task: all
//     processes in its process group and its cgroup (without cgroups, the orphans
//     with its mark) are killed before the exit is reported.
//   - When an exit is reported, the output is in the log. An escaped process that
//     keeps the output open delays this by up to half a second.
//   - A killed supervisor is replaced. Its tasks' processes are found (by cgroup,
//     and by BOURSE_TASK in their environment) and killed, and the tasks end with
//     code -1. The daemon sends the exits that it knows to the new supervisor. If
//     daemon and supervisor are killed together, the new ones do not know these
//     tasks.
//   - Labels contains only limits that the host can enforce. Without cgroups there
//     are none: see cgroup.None.
//   - A task's limits are set before its program is executed: see cgroup.
//   - A task with its own network or mounts is created in them, as are commands
//     executed in it; see apart. No other process ever enters them.
//   - A frozen task's processes do nothing until they are thawed, whatever happens
//     to the daemon. They are killed without being thawed first.
//   - If a terminal's user disconnects, the command receives SIGHUP and is then
//     killed together with its session.
//   - The supervisor exits when no daemon is connected and it has no task.
//
// # State, goroutines and locks
//
// Supervisor: supervisor.mu guards the table of machines (table.go). Each machine's log (driver/logs) has its own
// mutex, taken after supervisor.mu. children.forking and children.mu cover the time between a fork and its
// registration (reap.go). Goroutines: the main loop (signals, reaping, idleness), one that accepts connections, and
// one per connection, request in progress and output stream. A quiet task costs two parked goroutines and three
// descriptors: about 15 KiB.
//
// Driver: the goroutine that reads the link is the only one that changes the mirror of the supervisor's table, in the
// order in which events and answers arrive, so that an exit is never overwritten. Inspect and Wait use the mirror.
// The same goroutine creates a new link when one breaks.
//
// # Trade-offs
//
//   - The hot path is one round trip and a fork. The log file is created at the first
//     byte; sched_linux.go explains why a thread changes its scheduling before a fork.
//   - With cgroup v1 a start waits 10 to 20 ms for the kernel and costs a thread,
//     because a child is created in the groups of the thread that forks it.
//   - Log lines are not synced to disk: they survive the crash of any process, but
//     not a crash of the host. If the supervisor is killed, its tasks are lost, and
//     so is the data that it has read but not written.
//   - A task with its own namespaces costs a thread for its start and for every
//     exec, because a thread that has been in a mount namespace cannot leave it.
//     Other tasks cost nothing.
//   - A fork copies the table of descriptors, so a start gets slower with the number
//     of tasks: by about 0.4 ms per thousand, on two cores.
//   - On systems other than Linux there are no cgroups and no /proc: a process that
//     leaves its group is not found.
package process
