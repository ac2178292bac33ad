// Package logs stores machines' output in log files. It writes, rotates, reads and follows these
// files. A machine's log contains both output streams of all of the machine's boots.
//
//	<dir>/<machine>/<n>    records in the CRI log format; new records go to the file with the highest n
//
// # Writers and readers
//
// A [Log] is the only writer of a machine's files. Readers in other processes do not need a lock,
// because files only grow and are never renamed, and a new file is created only after the last
// write to the previous file. Data is not synced to disk, so it survives a crash of any process,
// but not a host crash.
//
// # The keeper
//
// If the daemon itself read the containers' output, output would be lost whenever the daemon exits.
// Instead, each worker has a keeper, a small process that outlives the daemon. [Keep] is the
// keeper's main function, and [Keeper] is its counterpart in the daemon. The keeper reads from the
// FIFOs to which the containers' shims write:
//
//	container ── shim ──▶ FIFO ──▶ keeper ──▶ log      daemon reads the log
//
// The keeper may also be killed. A shim holds both ends of its FIFOs open, so its writes do not
// fail, and the next keeper reads the data that is still in the FIFOs. Only data that the killed
// keeper had read but not yet written is lost: for each stream, up to 128 KiB and the beginning of
// an incomplete line. If a keeper exits on request, no output is lost.
package logs
