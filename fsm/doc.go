// Package fsm runs durable, typed state machines.
//
// A definition ([Define]) is a list of named steps. A run is one execution of a definition on one
// resource, recorded in a [Journal] that outlives the process.
//
// # Guarantees
//
//   - A run is durable before its first step executes, and a finished step before
//     the next one executes. A durable step never executes again. A step that is not
//     yet durable executes again after a crash, so steps must be idempotent.
//   - A run is restored from its own [Record] alone, whatever state other runs of
//     any definition have left.
//   - Only one run at a time executes on a resource. Others, at most [Config.MaxQueue], wait in
//     the order in which they were recorded, which a restart does not change. A delayed run
//     enters the queue when it is due.
//   - A run ends as done, failed or canceled, and does not change after that. Its
//     last record contains the error.
//   - A cancellation is durable before it has any effect. It applies to executing,
//     waiting, delayed and stuck runs.
//   - A step has a deadline for each attempt and a maximum number of attempts. A run that has
//     used them up is [Stuck]. It blocks its resource and remains visible until [Engine.Retry],
//     [Engine.Skip] or [Engine.Cancel].
//   - A run whose definition, step or request this release does not know is [Parked]. It is
//     reported, never skipped, and blocks only its own resource.
//   - No timer delays a commit. Simultaneous transitions share one commit, and a
//     single transition is committed at once.
//
// A step must handle being executed twice. After an interruption, it has to check first what it
// has already done.
//
// # Goroutines and locks
//
// [Engine.Run] owns every goroutine that executes a step and returns when the last one has ended. An executing run
// has one goroutine. A run that waits for its turn, its time or its next attempt has none. [Def.Start] uses the
// goroutine that will execute the run to wait until it is durable.
//
// Locks, in the order of acquisition: a run's turn (held by the goroutine that writes its next record, until that is
// durable), the engine's mutex (for maps and queues, and during Journal.Submit, which does not block), the journal's
// own. Steps, transactions' writes, Config.Observe and log handlers are called without any of the engine's locks.
package fsm
