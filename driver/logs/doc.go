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
//	container ── shim ──▶ FIFO ──▶ keeper ──▶ log      daemon reads the log
//
// The keeper may be killed too. The shim holds both ends of a FIFO, so nothing
// breaks, and the next keeper goes on with what is in it. Lost is then what the
// killed one had read and not written: at most 128 KiB of each stream, and the
// beginning of a line whose end had not come. A keeper that is told to end
// loses nothing.
package logs
