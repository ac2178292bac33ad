// Package process is the driver for image "host": machines are commands of
// the host itself. It needs no root and nothing installed; with root it also
// enforces limits through cgroups.
//
// # Two processes
//
// A Driver lives in the worker's daemon and may die at any instruction. What
// must not die is in a supervisor, one small process per directory, which
// Driver.Recover finds or starts in a session of its own. The supervisor is the
// parent of the tasks: it reads their output into log files, reaps them, and
// holds their exits until they are forgotten. It knows nothing of machines'
// records; the daemon knows nothing of pipes and signals.
//
//	daemon: Driver ── link ──▶ socket ──▶ session : supervisor ── fork ──▶ tasks
//	          mirror ◀── exits ──┘            table, logs ◀── output ──┘
//	          reads the log files itself
//
// # Promises
//
//   - A daemon's death is invisible: tasks, exits and log lines go on. A
//     successor cuts off what the dead one left in flight before it lists.
//   - One supervisor per directory (a file lock), one daemon per supervisor
//     (the newest; the one before is told and stays away).
//   - A start that failed leaves nothing. A task that ended leaves nothing
//     either: its process group, its cgroup, and without cgroups the orphans
//     with its mark are killed before the exit is told.
//   - When an exit is told, the output is in the log. A process that escaped
//     and keeps the output open holds it up for half a second at most.
//   - A killed supervisor is replaced. Its tasks' processes are found (by
//     cgroup, and by BOURSE_TASK in their environment) and killed; the tasks
//     end with code -1. Exits that the daemon knew are handed to the new one.
//     If daemon and supervisor die together, those tasks are simply unknown.
//   - What the host cannot enforce is not in Labels. Without cgroups nothing
//     is: see cgroup.None.
//   - A task's limits are set before its program is executed: see cgroup.
//   - A task with a network or mounts of its own is born in them, and what is
//     executed beside it is, too; see apart. No one else is ever there.
//   - A frozen task's processes do nothing until they are thawed, whatever becomes
//     of the daemon. To be killed they are never let go on first.
//   - A terminal's user who leaves is noticed: the command is hung up on, then
//     killed, with all that is in its session.
//   - The supervisor ends when no daemon is connected and it holds no task.
//
// # State, goroutines and locks
//
// Supervisor: the table of machines (table.go) under supervisor.mu; each
// machine's log (driver/logs) under its own mutex, taken after it; children.forking and
// children.mu for the moment between a fork and its registration (reap.go).
// Goroutines: the main loop (signals, reaping, idleness), one that accepts,
// one per connection, per request in progress and per output stream. A quiet
// task costs two parked goroutines and three descriptors: about 15 KiB.
//
// Driver: the mirror of the supervisor's table is changed only by the
// goroutine that reads the link, in the order in which news and answers come,
// so that an exit is never unlearned. Inspect and Wait are answered from it.
// The same goroutine makes a new link when one breaks.
//
// # Trade-offs
//
//   - The hot path is one round trip and a fork. The log's file is made at the
//     first byte; sched_linux.go says why a thread hurries before it forks.
//   - With cgroup v1 a start waits 10 to 20 ms for the kernel, and costs a thread:
//     a child is born in the groups of the thread that forks it.
//   - Log lines are not synced to disk: they survive every process, not the
//     host. What the supervisor has read and not written is lost with it, as
//     its tasks are.
//   - A task with namespaces of its own costs a thread for its start, and one
//     for every exec: a thread that has been in a mount namespace cannot go
//     back. It costs others nothing.
//   - A fork copies the table of descriptors, so that a start gets slower with
//     the number of tasks: by about 0.4 ms per thousand, on two cores.
//   - Elsewhere than on Linux there are no cgroups and no /proc: a process that
//     leaves its group is not found.
package process
