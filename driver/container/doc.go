// Package container is the driver for OCI images: machines are containers of
// containerd, with any runtime that it knows. It needs root, a containerd of
// version 1.6 or newer and a runtime; which registry an image came from and
// how is not its business: Task.Image names an image record that is there and
// unpacked.
//
// # Who does what
//
// A Driver lives in the worker's daemon and may die at any instruction, and so
// may containerd. What must not die is a shim per container, containerd's own,
// and the keeper, a process that reads the containers' output (package logs).
//
//	daemon: Driver ── gRPC ──▶ containerd ── ttrpc ──▶ shim ── fork ──▶ container
//	          └── socket ──▶ keeper ◀── FIFOs ───────────┘
//
// Everything that the driver has to know after a restart is with containerd: a
// container's id names its driver and its task, its labels say how it ended.
// The driver's directory holds only FIFOs, what a program reads on stdin, files
// of names, and one mark per task that its program was started.
//
// # Promises
//
//   - A daemon's death is invisible: containers, exits and output go on.
//     Recover adopts what was started, and removes what was not, whatever it
//     consists of. What containerd still finishes for the dead daemon after
//     that is found for half a minute and removed.
//   - So is containerd's: calls give CodeUnavailable, Wait waits on. Nothing
//     is reported as ended that is not.
//   - A start that failed leaves nothing: no container, snapshot, task,
//     directory, scratch or cgroup. If containerd is away by then, it is
//     removed when containerd is back.
//   - When an exit is told, no process of the container lives, the output is
//     in the log, and whether it ran out of memory is known. An output that
//     the keeper cannot finish holds the exit up for ten seconds at most.
//   - A container whose shim was killed ends with code -1 and an error, and
//     its processes are killed.
//   - An ended task keeps no shim and no mount: its exit is written to the
//     container's record, and then the task is deleted.
//   - Several drivers may use one containerd: each touches only what has its
//     mark, which is made of its directory's path.
//   - What the host cannot enforce is not in Labels.
//
// # What a container gets
//
// Containerd's defaults: its capabilities, its seccomp profile, no new
// privileges, no device but the usual and those of CDI that were ordered. Of
// the host it sees the mounts that were ordered, and files of names. /run is
// the image's own. There is no privileged mode, and a runtime is named, never
// a path.
//
// # Secrets
//
// What a task has of secrets is in no file of a disk: neither in containerd's
// record nor in a bundle, but in a directory of the container's on a tmpfs. Its
// shim runs, in runc's place, a script, and that the daemon's program where one
// of the container's begins, which adds them to what runc reads (BecomeRunc). A daemon's
// death changes nothing, and the directory goes with the container. Files are mounted
// from there, read-only.
//
// # Order of a start, and what a death in it leaves
//
//	directory, FIFOs   removed by Recover: no container; stdin, too
//	keeper reads       told to forget by Recover
//	snapshot           has our mark: removed by Recover; a label keeps it from the garbage collector
//	secrets            the directory has our mark: removed by Recover
//	container record   no task and no mark of a start: removed by Recover
//	task created       removed by Recover
//	task started       adopted by Recover
//
// A start goes on when its caller's context ends; Destroy waits for it.
//
// # Goroutines and locks
//
// One goroutine per running task, which asks containerd for its end (about
// 30 KiB), one per start in progress, and one that removes debris while there is
// any; Close waits for them. Driver.mu guards the table of machines, the
// status of tasks and the client, and is held over no call.
//
// # Trade-offs
//
//   - The hot path is four calls of containerd (snapshot, container, create,
//     start) and one of the keeper, which runs beside the first. Images'
//     configurations are remembered; users are looked up without a mount.
//   - Containerd says 128+n for signal n as for an exit with that code. It is
//     read as the signal, for n below 32.
//   - The main process of a container gets only signals that it handles: so
//     the kernel has it. Stop asks again when one that was just starting does.
//   - A runtime needs memory and threads of the container's own to start it:
//     there are always 16 MiB, and a limit of fewer than 32 processes holds
//     from the program's first instruction only.
//   - Writing files into an image's root mounts it for a moment; the kernel
//     syncs its file system when that ends.
//   - What an exec has left running when it ended by itself goes on.
package container
