// Package bourse defines the vocabulary of an exchange for compute.
//
// An [Order] requests a machine. Each worker manages its own capacity and answers with a [Quote]. A stateless broker
// ranks the quotes and fills the order on one worker, within the caller's request. If no worker can fill the order, the
// broker replies immediately with the reasons. There is no central scheduler, no consensus and no pending state.
//
// # Words
//
//   - region: a short code that the exchange lists; an order is filled only in the regions that it names
//   - worker: a host and its daemon; only the daemon manages the host's machines and capacity
//   - machine: the object that an order places; its id never changes, and each version has an instance id
//   - guest: the size of a machine
//   - standby: a machine that starts when the worker of its primary machine is lost
//   - app: a namespace for machines
//   - task: a payload that is answered within the request, by a machine that stays warm for the task or by one that exists only for it
//   - order, quote, refusal, claim, fill: the steps of a trade
//   - reservation: several orders for capacity, which one or more workers hold for a limited time; all of the orders are filled or none
//   - hold: one worker's part of a reservation, for one order
//   - ledger: a worker's record of how much of each resource is committed or held
//   - policy: the curves that rank a region's workers; the ranking of a shadow policy is only recorded for comparison
//   - view: a server's own copy of the whole cluster's data; it may be out of date, so it is only a hint
//   - broker: the stateless API server
//   - run: a durable sequence of steps, such as the start of a machine, that continues after a crash
//   - site: a server in its role as the author of rows in the view
//   - member: a server that takes part in the membership, by gossip
//   - tag: the number at the start of the ids of a worker's machines, derived from the worker's name
//   - laptop: a device outside the cluster that connects to a private network with WireGuard, through one worker (its entry)
//   - supervisor, keeper: processes that outlive the worker's daemon; a supervisor runs host processes, and a keeper writes containers' output to log files
//   - poller: a client that asks a worker for work; a worker with pollers is a gateway, and a machine that a poller runs is a job
//
// # Invariants
//
//  1. Own truth. Only a worker changes its machines' state, and the record on its disk is authoritative.
//  2. No pending. By its deadline, every order is filled, refused or, if a worker has stopped answering, reported as unknown.
//  3. Region is law. A machine runs only in a region that its order lists. The regions are tried one after another.
//  4. Never oversold. At any time, a worker's used amount of each resource is at most the capacity multiplied by the overcommit.
//  5. Intent before effect. Nothing runs or remains on a host unless a durable record of it was written first.
//  6. A bounce is invisible. If the worker's daemon is killed with kill -9 and restarted, no machine stops, and no exit code, event or log line is lost.
//  7. Once. Claims are idempotent by order id. A claim with an unknown outcome is canceled before another fill counts.
//  8. The view is a hint. If it is out of date or empty, an order may take longer or be refused, but it is never placed wrongly.
//  9. Brokers store nothing that matters.
//  10. No is an answer. A refusal names the worker, the resource, the amount requested and the amount free.
//
// # Packages
//
// Each package has a level, listed in arch_test.go, and imports only packages of the same or a lower level.
// docs/ARCHITECTURE.md follows an order, a request and a task through the packages.
package bourse
