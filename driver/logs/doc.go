// Package logs stores the output of machines in files. It defines the files' format and rotation,
// and reads and follows them. A machine's log contains both output streams of all its boots.
//
//	<dir>/<machine>/<n>    records in the CRI's format; the highest n is being written
//
// # Writers and readers
//
// A [Log] is the only writer of a machine's files. Readers are other processes and need no lock:
// files only grow and are never renamed, and a new file is created only after the last write to
// the previous file. Written data is not synced to disk: it survives the crash of any process, but
// not a crash of the host.
//
// # The keeper
//
// If the daemon itself read the containers' output, output would be lost when the daemon exits. A
// keeper reads it instead. The keeper is a small process that outlives the daemon; each worker has
// one. [Keep] is its main function, and [Keeper] is the daemon's side. The keeper reads the FIFOs
// to which a container's shim writes:
//
//	container ── shim ──▶ FIFO ──▶ keeper ──▶ log      daemon reads the log
//
// The keeper may be killed, too. The shim holds both ends of a FIFO open, so its writes do not
// fail, and the next keeper continues with the data in the FIFO. Only the data that the killed
// keeper had read but not written is lost: at most 128 KiB of each stream, and the beginning of an
// incomplete line. A keeper that exits on request loses nothing.
package logs
