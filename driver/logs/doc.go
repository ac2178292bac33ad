// Package logs stores the output of machines in files. It defines the files' format and rotation, and reads and
// follows them. A machine's log contains both its streams and all its boots.
//
//	<dir>/<machine>/<n>    records in the CRI's format; the highest n is being written
//
// # Writers and readers
//
// A [Log] is the only writer of a machine's files. Readers are other processes and need no lock: files only grow, are
// never renamed, and the next one is created after the last write to the previous one. Written data is not synced to
// disk: it survives every process, but not the host.
//
// # The keeper
//
// The process that runs a machine's container is not its parent, and if a daemon read its output,
// the output would be lost when the daemon ends. Therefore a keeper reads the output: one small
// process per worker that outlives the daemon ([Keep] is its main function, [Keeper] the daemon's
// side). It reads the FIFOs to which a container's shim writes:
//
//	container ── shim ──▶ FIFO ──▶ keeper ──▶ log      daemon reads the log
//
// The keeper may be killed, too. The shim holds both ends of a FIFO, so nothing breaks, and the next keeper continues
// with the data in it. Only the data that the killed keeper had read but not written is lost: at most 128 KiB of each
// stream, and the beginning of an incomplete line. A keeper that is told to exit loses nothing.
package logs
