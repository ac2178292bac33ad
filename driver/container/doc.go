// Package container implements the driver for OCI images: machines are containerd containers and
// may use any runtime that containerd supports. It requires root, containerd 1.6 or newer and a
// runtime. It does not pull images: Task.Image names an existing, unpacked image record.
//
// # Architecture
//
// A Driver runs in the worker's daemon. Both the daemon and containerd may be killed at any
// moment. The processes that must survive are containerd's shims, one per container, and the
// keeper, a process that reads the containers' output (package logs).
//
//	daemon: Driver ── gRPC ──▶ containerd ── ttrpc ──▶ shim ── fork ──▶ container
//	          └── socket ──▶ keeper ◀── FIFOs ───────────┘
//
// All data that the driver needs after a restart is in containerd: a container's id identifies its
// driver and its task, and its labels record its exit. The driver's directory contains only FIFOs,
// programs' stdin, name resolution files, and a mark for each started task.
//
// # Guarantees
//
//   - If the daemon exits, its containers keep running, and their exits and output are not
//     lost. Recover adopts started containers and removes all parts of incomplete ones. Objects
//     that containerd finishes creating only after Recover are removed during the next half
//     minute.
//   - If containerd exits, containers keep running, too. Calls then return CodeUnavailable, but
//     Wait continues to wait. No running task is reported as ended.
//   - A failed start leaves no container, snapshot, task, directory, scratch files or cgroup
//     behind. If containerd is unavailable, they are removed once it is available again.
//   - When an exit is reported, no process of the container is alive, the output is in the log,
//     and the exit says whether the container ran out of memory. If the keeper cannot finish
//     writing the log, the exit is delayed by up to ten seconds.
//   - A container whose shim was killed ends with code -1 and an error, and its
//     processes are killed.
//   - An ended task has no shim and no mounts: its exit is stored in the container's
//     record, and then the task is deleted.
//   - Several drivers may use one containerd: each changes only objects with its
//     mark, which is derived from its directory's path.
//   - Labels contains only limits that the host can enforce.
//
// # Isolation
//
// Containers have containerd's default capabilities, its default seccomp profile, no new
// privileges, and only the usual devices and the ordered CDI devices. Of the host's files, a
// container sees only the ordered mounts and the name resolution files. /run comes from the image
// and is not a tmpfs. There is no privileged mode, and a runtime is selected by name, never by
// path.
//
// # Secrets
//
// A task's secrets are never stored on a disk, not even in containerd's record or in a bundle.
// Each container has a directory for them on a tmpfs. The container's shim runs a script instead
// of runc. To start a program, the script runs the daemon's executable, which adds the secrets to
// runc's input (BecomeRunc). The secrets survive the daemon and are removed with the container.
// Secret files are mounted read-only from that directory.
//
// # Steps of a start, and what a crash after each of them leaves
//
//	directory, FIFOs   removed by Recover together with stdin, because there is no container
//	keeper reads       stopped by Recover
//	snapshot           has our mark: removed by Recover; a label protects it from the garbage collector
//	secrets            the directory has our mark: removed by Recover
//	container record   without a task and a start mark: removed by Recover
//	task created       removed by Recover
//	task started       adopted by Recover
//
// A start continues even if its caller's context ends. Destroy waits for it.
//
// # Goroutines and locks
//
// Each running task has a goroutine that waits until containerd reports the task's end (about 30
// KiB). Each start in progress also has a goroutine. Another goroutine removes remains, if there
// is any. Close waits for all of them. Driver.mu guards the table of machines, the status of
// tasks and the client, and is not held during calls.
//
// # Trade-offs
//
//   - The hot path consists of four calls to containerd (snapshot, container, create,
//     start) and one to the keeper, which is concurrent with the first. Images'
//     configurations are cached, and users are looked up without a mount.
//   - containerd reports 128+n both for signal n and for an exit with that code. The driver
//     interprets it as the signal if n is below 32.
//   - The kernel delivers only those signals to a container's main process that the process
//     handles. If the process is still starting, Stop therefore sends the signal again once the
//     process handles it.
//   - While a runtime starts a container, it uses part of the container's memory and threads.
//     The minimum memory limit is therefore 16 MiB, and a limit of fewer than 32 processes
//     applies only from the program's first instruction on.
//   - Writing files into an image's root requires a temporary mount. The kernel syncs
//     the file system when it is unmounted.
//   - When an exec ends normally, processes that it has started in the background keep running.
package container
