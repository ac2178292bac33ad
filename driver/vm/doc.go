// Package vm runs OCI images in virtual machines. It is a part of the driver of containers: a virtual
// machine is a container whose program is qemu. Everything that outlives the daemon, collects
// output and reports exits is therefore the same as for other containers, and qemu is confined like them.
//
//	containerd's shim ── runc ──▶ container: agent ──▶ qemu ──▶ guest: agent (process 1) ──▶ program
//	                                           └──── streams over a virtio port ────┘
//
// # The container around a machine
//
// The container's first process is the agent (package agent). It starts qemu, lets the guest run the
// machine's program, and ends with the program's exit code. It passes on its input, signals and
// terminal, and the program's output. Another program in the guest is another agent in the
// container. Bytes from the guest are decoded only in the container, never in the daemon.
//
// The container has a user of its own, no capabilities, containerd's seccomp profile, and its machine's
// cgroup and network namespace. It sees the host's programs and libraries (/usr), read-only, and no
// other files of the host except those in [Machine], and no block devices except the task's mounts. qemu adds a seccomp filter of its own.
//
// # Volumes
//
// Each of a task's mounts is a block device. The container gets a device node, and qemu a further disk. The guest
// mounts the disk's file system, and unmounts it before it reports the program's exit. The agent holds the device open while
// the container runs: see [session.Device].
//
// # The guest
//
// The guest runs the kernel of the host's distribution. Its initial file system contains the agent and the few modules
// that it needs. The root file system consists of the image, a read-only disk (EROFS) that all machines of the
// image share, and a scratch disk that is new at every boot. Everything else, such as files, secrets, addresses and
// the program itself, arrives over the virtio port ([session.Boot]). Secrets are never on a disk.
//
// The machine's network interface belongs to the guest: a tap device next to eth0 exchanges all packets
// with it. The guest uses the addresses that the machine's namespace has. The rules that apply to
// the namespace's packets are on the host's side of eth0, so they apply to the guest.
//
// The guest's memory and processors are the task's limits. The container may use more memory than that, for qemu itself.
//
// # Suspension
//
// To suspend a machine, the driver runs "agent suspend" in the container, and then pauses the container. The agent stops
// the guest, writes qemu's state to an encrypted file in the machine's directory, and kills qemu. To resume it, the
// driver runs "agent resume": the agent starts another qemu with that state and the same connection to the guest, deletes the
// file, and has the guest set its clock and reseed its random numbers. If qemu's state cannot be restored, the agent
// exits with code 125, like a machine that has failed.
//
// # Failures
//
// If qemu or the guest ends without reporting the program's exit, the agent writes the last lines of the guest's
// console to the machine's output, and exits with code 125. If the guest cannot start the program,
// Start fails with the guest's reason.
package vm
