// Package logs keeps the output of machines in files: their format, their
// rotation, reading and following them. A machine's log holds both its streams
// and all its boots.
//
//	<dir>/<machine>/<n>    records in the CRI's format; the highest n is being written
//
// # Writers and readers
//
// A [Log] is the one writer of a machine's files. Readers are other processes,
// and need no lock: files only grow, are never renamed, and the next one is
// begun after the last write to the one before. What is written is not synced
// to disk: it survives every process, not the host.
//
// # The keeper
//
// Who runs a machine in a container is not its parent, and a daemon that reads
// its output would take it with it when it dies. So a keeper does, one small
// process per worker that outlives the daemon ([Keep] is its main function,
// [Keeper] the daemon's side). It reads the FIFOs which a container's shim
// writes to:
//
//	container ── shim ──▶ FIFO ── splice ──▶ spool ──▶ log      daemon reads the log
//
// The keeper may be killed at any instruction as well, and no line is lost or
// comes twice. The shim holds both ends of a FIFO, so nothing breaks. What the
// kernel takes from a FIFO it puts into a spool file in the same call (splice
// moves as many bytes as it takes), and before lines go from there into the
// log, a note says which bytes will become which record at which place: the
// next keeper finishes or repeats exactly that. See spool.
package logs
