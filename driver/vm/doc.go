// Package vm runs OCI images in virtual machines. It is part of the container driver: a virtual machine is a container
// whose program is qemu. Its output and exit are therefore handled like those of any other container, even while the
// daemon is down, and qemu is confined like any other container's program.
//
//	containerd's shim ── runc ──▶ container: agent ──▶ qemu ──▶ guest: agent (process 1) ──▶ program
//	                                           └──── streams over a virtio port ────┘
//
// # A machine's container
//
// The container's first process is the agent (package agent). It starts qemu, makes the guest run the machine's
// program, and exits with the program's exit code. It forwards its input, signals and terminal size to the program, and
// the program's output to its own. To run another program in the guest, the driver runs another agent in the container.
// Data from the guest is decoded only in the container, never in the daemon.
//
// The container runs as its own user, without capabilities, with a seccomp profile based on containerd's, and in its
// machine's cgroup and network namespace. The only host files that it sees are the programs and libraries (/usr),
// read-only, and the files listed in [Machine]. The only block devices that it sees are the task's mounts. qemu adds
// its own seccomp filter.
//
// # Volumes
//
// Each of a task's mounts is a block device. It appears as a device node in the container and as an additional disk in
// the guest. The guest mounts the disk's file system, and unmounts it before it reports the program's exit. The agent
// keeps the device open while the container runs; see [session.Device].
//
// # The guest
//
// The guest runs the kernel of the host's distribution. Its initial file system contains the agent and the few modules
// that it needs. The root file system consists of two disks: the image's read-only disk (EROFS), which all machines
// with the image share, and a scratch disk, which is created at every boot. Everything else, such as files, secrets,
// addresses and the program's command line, arrives over the virtio port ([session.Boot]). Secrets are never written to
// a disk.
//
// The guest takes over the machine's network interface, eth0: all packets are exchanged between eth0 and a tap device
// that is connected to the guest. The guest uses the addresses of the machine's network namespace. The namespace's
// packet filter is on the host's side of eth0, so it also applies to the guest.
//
// The task's limits determine the guest's memory and number of processors. The container may use some additional memory
// for qemu itself.
//
// # Suspension
//
// To suspend a machine, the driver runs "agent suspend" in the container, and then pauses the container. The agent
// stops the guest, writes qemu's state to an encrypted file in the machine's directory, and kills qemu. To resume it,
// the driver runs "agent resume": the agent starts another qemu, which restores that state and takes over the
// connection to the guest. The agent then deletes the file, and makes the guest set its clock and reseed its random
// number generator. If qemu's state cannot be restored, the agent exits with code 125, as it does after other failures.
//
// # Failures
//
// If qemu or the guest fails before the guest has reported the program's exit, the agent writes the last lines of the
// guest's console to the machine's output, and exits with code 125. If the guest cannot start the program, Start
// returns the guest's error.
package vm
