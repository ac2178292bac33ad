// Package worker implements the daemon of one host, which alone decides how the host's
// machines and capacity are used. It answers orders with quotes, fills claims, runs
// machines through drivers, and keeps its records in its store.
//
// Guarantees:
//
//   - A claim takes resources from the ledger in the transaction that records the
//     machine, so capacity is never oversold (invariant 4).
//   - Every effect on the host is recorded durably before it happens. Each operation is a
//     run of package fsm, whose steps may execute again after a crash (invariant 5).
//   - After a crash, tasks that drivers are running are adopted if they have a record. If a task has no record, the
//     worker refuses to start, unless the operator has allowed it to remove such tasks. No machine is restarted because
//     of a crash, and no exit is lost (invariant 6).
//   - Repeating a claim with the same order id has no effect, and a cancellation wins
//     even if it arrives before the claim. Cancellations that could not be delivered
//     reach the worker through the view (invariant 7).
//   - A task is recorded before its payload is sent, and runs once. Repeating its order
//     returns the result. If the daemon dies during a warm task, the task is lost, but
//     its resources are released (invariants 4, 5 and 7).
//   - The worker publishes changed records to the view soon after each change. If the view loses them, the worker
//     publishes all records again. No caller waits for the view. The only rows in the view that affect machines are
//     those for canceled orders (invariant 8).
//   - The network, mounts and devices of a machine with an image exist from before its
//     program starts until after the program has exited. The image stays on the host
//     until the machine is destroyed. A stopped machine keeps its record, its volumes and
//     its address.
//   - A reservation's holds count in the ledger like machines, until they are released or expire by the worker's clock.
//     A machine that names the reservation takes over its holds in the transaction that records the machine (invariant
//     4). A release wins even if it arrives before the order that would create the hold (invariant 7).
//   - A volume outlives its machine and belongs to at most one machine; the transaction that records a machine checks
//     this. Disk space for a volume and its snapshots is taken from the ledger before it is used. An interrupted copy
//     from another worker is resumed until it is complete or stuck.
//
// # Concurrency
//
// All state is in the store. Every change to a machine is one store transaction that reads the record, decides and
// writes. The store executes transactions one after the other, so no locks are needed. Operations on the host are runs.
// The engine executes runs on the same machine one after the other. One goroutine per started machine waits for its
// program's exit (package machines), one deletes expired holds (package admit), one publishes to the view and one reads
// from it (package publish). Run waits for all of them, for the engine, and for the goroutine that prunes the store.
//
// # Parts
//
// The parts share package state: the store, the engine and notifications of changes. The parts use package admit for
// decisions about orders, and otherwise do not import one another. This package opens the parts in order, and passes to
// each part the other parts that it needs.
package worker
