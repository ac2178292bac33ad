// Package logs stores the output of machines in files. It defines the files' format and rotation,
// and reads and follows them. A machine's log contains both output streams of all its boots.
//
//	<dir>/<machine>/<n>    records in the CRI's format; the highest n is being written
//
// # Writers and readers
//
// A [Log] is the only writer of a machine's files. Readers are other processes and need no lock:
// files only grow, are never renamed, and the next one is created after the last write to the
// previous one. Written data is not synced to disk: it survives the crash of any process, but not a
// crash of the host.
//
// # The keeper
//
// If the daemon read the output of containers, the output would be lost when the daemon ends.
// Therefore a keeper reads it: one small process per worker that outlives the daemon ([Keep] is its
// main function, [Keeper] the daemon's side). It reads the FIFOs to which a container's shim
// writes:
//
//	container ── shim ──▶ FIFO ──▶ keeper ──▶ log      daemon reads the log
//
// The keeper may be killed, too. The shim holds both ends of a FIFO, so nothing breaks, and the
// next keeper continues with the data in it. Only the data that the killed keeper had read but not
// written is lost: at most 128 KiB of each stream, and the beginning of an incomplete line. A
// keeper that exits on request loses nothing.
package logs
