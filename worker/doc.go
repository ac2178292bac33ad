// Package worker is the daemon of one host: the sole owner of its machines
// and its capacity. It answers orders with quotes, fills claims, runs
// machines through a driver, and keeps all that matters in its store.
//
// What it promises:
//
//   - A claim takes from the ledger in the transaction that records the
//     machine, so capacity is never oversold (invariant 4).
//   - Every effect on the host follows a durable record of it; each operation
//     is a run of package fsm whose steps may execute again after a crash
//     (invariant 5).
//   - After a crash it asks the driver what is alive, adopts what has a
//     record and removes what has none; nothing is restarted for it, no exit
//     is lost (invariant 6).
//   - A claim is idempotent by order id, and a cancellation that comes first
//     wins; one that could not be told is found in the view (invariant 7).
//   - A task is recorded before its payload is sent, and is run once: a
//     repetition returns how it ended. What a daemon's death cuts off is lost, and its
//     slots are not (invariants 4, 5 and 7).
//   - The view gets what the store holds, soon after each change and as a
//     whole whenever it has lost it; no caller ever waits for it, and nothing
//     in it changes a machine but a cancelled order (invariant 8).
//   - A machine with an image has on the host what its record says, its image,
//     network, mounts and devices, before its program starts and until it has
//     ended; its image stays as long as the machine. What a stopped machine
//     keeps is its record, its volumes and its address.
//   - What a reservation holds is in the ledger like what machines take, until
//     it is released or over by the worker's own clock. A machine that names the
//     reservation takes it in the transaction that records the machine
//     (invariant 4); a release that overtakes its reserve wins (invariant 7).
//   - A volume outlives its machine and has one at a time: who gets it is
//     decided in the transaction that records the machine. What it and its
//     snapshots take is in the ledger before it is on the disk. A copy from
//     another worker goes on until it is whole, or is seen to be stuck.
//
// # Concurrency
//
// All state is in the store. Every change of a machine is made in one store
// transaction that reads the record, decides and writes; the store runs
// transactions one after the other, so there is nothing to lock. Operations
// that touch the host are runs, serialised per machine by the engine. One
// goroutine per started machine waits for its end (package machines), one ends
// what is held when its time is over (package holds), one publishes to the view
// and one reads from it (package publish); they, the engine and the one that
// prunes the store belong to Run.
//
// # Parts
//
// The parts stand on package state: the store, the engine, the news of what
// changes. They do not import one another; this package opens them in order,
// and passes to each what it needs of the others.
package worker
