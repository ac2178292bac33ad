// Package bourse is the vocabulary of an exchange for compute.
//
// A request for a machine is an [Order]. Every worker answers for itself with
// a [Quote]; a stateless broker ranks the quotes and fills the order on one
// worker, inside the caller's request, or says at once why no worker could.
// There is no central scheduler, no consensus and no pending state.
//
// # Words
//
//   - region: a short code, a product listed on the exchange; strict
//   - worker: one host and the daemon on it, sole owner of its machines and capacity
//   - machine: what is placed; one id for life, a new instance id for each version
//   - guest: the size of a machine
//   - standby: a machine that starts when the worker of its primary machine is lost
//   - app: a name space for machines
//   - task: work on a payload, answered within the request, by a machine that stays warm for it or by one of its own
//   - order, quote, refusal, claim, fill: the trade, in this order
//   - reservation: capacity held on one or several workers for a time, for several orders or none
//   - hold: one worker's part of it, for one order
//   - ledger: a worker's account of what is committed and held, per resource
//   - view: everyone's hint about everyone; never the truth
//   - broker: the stateless API server
//   - run: a durable sequence of steps, such as a machine's start, that continues after a crash
//   - site: a server as the author of rows in the view
//   - member: a server that takes part in the membership, by gossip
//   - tag: the number that begins the ids of a worker's machines, derived from the worker's name
//   - supervisor, keeper: processes that outlive the worker's daemon and hold its machines and their output
//   - poller: a client that asks a worker for work; a worker with pollers is a gateway, and a job is a machine that a poller runs
//
// # Invariants
//
//  1. Own truth. Only a worker changes its machines' state, and its own disk is the only place that counts.
//  2. No pending. Every order ends filled or refused before its deadline.
//  3. Region is law. A machine never lands outside the regions its order names, in their order of preference.
//  4. Never oversold. For each resource of a worker, used is at most capacity times overcommit, at every instant.
//  5. Intent before effect. Nothing runs or stays on a host without a durable record written first.
//  6. A bounce is invisible. kill -9 of the worker daemon and a restart stop no machine and lose no exit code, event or log line.
//  7. Once. A claim is idempotent by order id; an unknown outcome is canceled before another fill counts.
//  8. The view is a hint. Stale or empty, it costs time or a refusal, never a wrong placement.
//  9. Brokers keep nothing that matters.
//  10. No is an answer. A refusal names the worker, the resource, what was wanted and what was free.
//
// # Packages
//
// Packages of a higher level import those of a lower one only; arch_test.go lists the levels. docs/ARCHITECTURE.md follows
// an order, a request and a deploy through the packages.
package bourse
