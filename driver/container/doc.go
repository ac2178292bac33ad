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
// All data that the driver needs after a restart is in containerd: a container's id identifies the
// driver and the task, and the container's labels contain the exit. The driver's directory contains
// only FIFOs, programs' stdin, name resolution files, and a mark for each started task.
//
// # Guarantees
//
//   - If the daemon exits, its containers keep running, and their exits and output are not
//     lost. Recover adopts started containers and removes incomplete ones. Objects that
//     containerd finishes creating only after Recover are removed within half a minute.
//   - Containers also keep running if containerd exits. Calls then return CodeUnavailable, but Wait
//     continues to wait. Running tasks are never reported as ended.
//   - After a failed start, the container, snapshot, containerd task, directory, scratch files and
//     cgroup are removed. If containerd is unavailable, they are removed once it is available again.
//   - When an exit is reported, all of the container's processes have ended, the output is in the
//     log, and the exit states whether the container ran out of memory. If the keeper cannot
//     finish writing the log, the driver waits up to ten seconds before it reports the exit.
//   - If a container's shim is killed, the container's processes are killed, and its exit has
//     code -1 and an error.
//   - Once a task's exit is stored in the container's record, its containerd task is deleted,
//     so ended tasks do not have shims or mounts.
//   - Several drivers may share one containerd. Each changes only objects with its own mark, which
//     is derived from its directory's path.
//   - Labels contains only limits that the host can enforce.
//
// # Isolation
//
// Containers have containerd's default capabilities, its default seccomp profile, no new
// privileges, and only the usual devices and the CDI devices that the order names. The only host
// files that a container sees are the mounts that the order names and the name resolution files.
// /run comes from the image and is not a tmpfs. There is no privileged mode, and a runtime is
// selected by name, never by path.
//
// # Secrets
//
// A task's secrets are never stored on a disk, not even in containerd's record or in a bundle. Each
// container has a directory for them on a tmpfs. The container's shim runs a script instead of
// runc. To start a program, the script runs the daemon's executable, which adds the secrets to
// runc's input (ExecRunc). The secrets outlive the daemon and are removed together with the
// container. Secret files are mounted read-only from that directory.
//
// # Steps of a start, and how Recover handles a crash after each step
//
//	directory, FIFOs   removed, together with stdin, because there is no container
//	keeper reads       stopped
//	snapshot           removed, because it has our mark; a label protects it from the garbage collector
//	secrets            removed, because their directory has our mark
//	container record   removed, because there is neither a task nor a start mark
//	task created       removed
//	task started       adopted
//
// If the caller's context is done, a start continues in the background. Destroy waits for it.
//
// # Goroutines and locks
//
// Each running task has a goroutine that waits until containerd reports the task's end (about 30
// KiB). Each start in progress also has a goroutine. If failed starts have left objects behind,
// another goroutine removes them. Close waits for all of these goroutines. Driver.mu guards the
// table of machines, the status of tasks and the client, and is not held during calls.
//
// # Trade-offs
//
//   - A start makes four calls to containerd (snapshot, container, create, start) and one to
//     the keeper, which is concurrent with the first. Image configurations are cached, and
//     users are looked up without a mount.
//   - containerd reports 128+n both for signal n and for an exit with that code. The driver
//     interprets it as the signal if n is below 32.
//   - The kernel delivers a signal to a container's main process only if the process handles
//     it. If the process is still starting, Stop therefore sends the signal again once the
//     process handles it.
//   - While a runtime starts a container, it uses part of the container's memory and threads.
//     The minimum memory limit is therefore 16 MiB, and a limit of fewer than 32 processes
//     is not set until just before the program starts.
//   - Writing files into an image's root requires a temporary mount. The kernel syncs
//     the file system when it is unmounted.
//   - When an exec ends normally, its background processes keep running.
package container
