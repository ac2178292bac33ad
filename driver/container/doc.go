// Package container implements the driver for OCI images: machines are containerd containers and
// may use any runtime that containerd supports. It requires root, containerd 1.6 or newer and a
// runtime. It does not pull images: Task.Image names an existing, unpacked image record.
//
// # Architecture
//
// A Driver lives in the worker's daemon, and both the daemon and containerd may be killed at any moment. The parts
// that must survive are containerd's shims, one per container, and the keeper, a process that reads the containers'
// output (package logs).
//
//	daemon: Driver ── gRPC ──▶ containerd ── ttrpc ──▶ shim ── fork ──▶ container
//	          └── socket ──▶ keeper ◀── FIFOs ───────────┘
//
// Everything that the driver needs after a restart is in containerd: a container's id identifies its driver and its
// task, and its labels contain its exit. The driver's directory contains only FIFOs, programs' stdin, name resolution
// files, and a mark for each started task.
//
// # Guarantees
//
//   - If the daemon ends, containers keep running and their exits and output are not lost.
//     Recover adopts started containers and removes incomplete ones with all their
//     parts. Objects that containerd completes only after Recover are found
//     during the next half minute and removed.
//   - If containerd ends, containers keep running, too: calls return CodeUnavailable, and Wait
//     continues to wait. No running task is reported as ended.
//   - A failed start leaves nothing: no container, snapshot, task, directory, scratch
//     or cgroup. If containerd is unavailable, these are removed when it is back.
//   - When an exit is reported, no process of the container is alive, the output is
//     in the log, and it is known whether the container ran out of memory. If the
//     keeper cannot finish the output, the exit is delayed by up to ten seconds.
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
// Containers have containerd's defaults: its capabilities, its seccomp profile, no new privileges,
// and only the usual devices and the ordered CDI devices. The ordered mounts and the name
// resolution files are the only parts of the host that they see. /run is the image's, not a tmpfs.
// There is no privileged mode, and a runtime is selected by name, never by path.
//
// # Secrets
//
// A task's secrets are never stored on a disk, not even in containerd's record or in a bundle. They
// are in a directory per container on a tmpfs. The container's shim runs a script instead of runc.
// When a program starts, the script runs the daemon's program, which adds the secrets to runc's
// input (BecomeRunc). The secrets remain when the daemon ends, and are removed with the container.
// Secret files are mounted read-only from that directory.
//
// # Steps of a start, and what a crash after each of them leaves
//
//	directory, FIFOs   removed by Recover, since there is no container; stdin, too
//	keeper reads       ended by Recover
//	snapshot           has our mark: removed by Recover; a label protects it from the garbage collector
//	secrets            the directory has our mark: removed by Recover
//	container record   without a task and a start mark: removed by Recover
//	task created       removed by Recover
//	task started       adopted by Recover
//
// A start continues when its caller's context ends; Destroy waits for it.
//
// # Goroutines and locks
//
// There is one goroutine per running task, which waits until containerd reports the task's end
// (about 30 KiB), one per start in progress, and one that removes debris, if any. Close waits for
// all of them. Driver.mu guards the table of machines, the status of tasks and the client, and is
// not held during calls.
//
// # Trade-offs
//
//   - The hot path consists of four calls to containerd (snapshot, container, create,
//     start) and one to the keeper, which is concurrent with the first. Images'
//     configurations are cached, and users are looked up without a mount.
//   - containerd reports 128+n both for signal n and for an exit with that code. It is
//     interpreted as the signal if n is below 32.
//   - The kernel delivers to the main process of a container only signals that it
//     handles. Stop sends the signal again when a starting process handles it.
//   - A runtime needs part of the container's memory and threads to start it:
//     the minimum is 16 MiB, and a limit of fewer than 32 processes applies only
//     from the program's first instruction on.
//   - Writing files into an image's root requires a temporary mount. The kernel syncs
//     the file system when it is unmounted.
//   - When an exec ends normally, processes that it has started in the background keep running.
package container
