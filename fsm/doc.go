// Package fsm runs durable, typed state machines.
//
// A definition ([Define]) is a list of named steps. A run is one execution of a definition on one
// resource, recorded in a [Journal] that outlives the process.
//
// # Guarantees
//
//   - A run is durable before its first step executes, and each finished step is durable before
//     the next step executes. A durable step never executes again. A step that is not
//     yet durable executes again after a crash, so steps must be idempotent.
//   - A run is restored from its own [Record] alone, regardless of the state of other runs of
//     any definition.
//   - Only one run at a time executes on a resource. At most [Config.MaxQueue] others wait in
//     the order in which they were recorded, which a restart does not change. A delayed run
//     enters the queue when it is due.
//   - A run ends as done, failed or canceled, and does not change after that. Its
//     last record contains the error.
//   - A cancellation is durable before it has any effect. It applies to executing,
//     waiting, delayed and stuck runs.
//   - A step has a deadline for each attempt and a maximum number of attempts. A run whose step has
//     used up its attempts is [Stuck]. It blocks its resource and remains visible until
//     [Engine.Retry], [Engine.Skip] or [Engine.Cancel].
//   - A run whose definition, step or request is unknown to this release is [Parked]. It is
//     reported, never skipped, and blocks only its own resource.
//   - No timer delays a commit. Simultaneous transitions share one commit, and a
//     single transition is committed at once.
//
// A step must be safe to execute twice. When it executes again after an interruption, it must
// first check how far the interrupted attempt got.
//
// # Goroutines and locks
//
// [Engine.Run] owns every goroutine that executes a step and returns when the last one has ended.
// An executing run has one goroutine. A run that is waiting for its turn, its start time or its
// next attempt has none. The goroutine that [Def.Start] creates waits until the run is durable, and
// then executes the next run on the resource.
//
// Locks, in the order of acquisition: a run's token (held by the goroutine that writes the run's
// next record, until the record is durable), the engine's mutex (for maps and queues, and during
// Journal.Submit, which does not block), the journal's own locks. The engine holds none of its
// locks while it calls steps, transactions' writes, Config.Observe or log handlers.
package fsm
