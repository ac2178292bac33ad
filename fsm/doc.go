// Package fsm runs durable, typed state machines.
//
// A definition ([Define]) is a list of named steps. A run is one execution of
// it on one resource, recorded in a [Journal] that outlives the process.
//
// # Promises
//
//   - A run is durable before its first step executes, a finished step before
//     the next one does. What is durable is never executed again; what is not
//     yet is executed again after a crash, so steps are idempotent.
//   - A run is rebuilt from its own [Record] alone. What other runs, of the
//     same definition or another, have left behind does not matter.
//   - One run at a time executes on a resource. Others wait in the order in
//     which they were recorded, at most [Config.MaxQueue] of them, and wait in
//     the same order after a restart. A delayed run takes its place when it is
//     due.
//   - A run ends as done, failed or canceled, and never changes again; the error
//     is part of its last record.
//   - A cancellation is durable before it has any effect, and is valid for
//     runs that execute, wait, are delayed or stuck.
//   - A step has a deadline for each attempt and a limit of attempts. A run
//     that has used them up is [Stuck]: it keeps its resource and can be seen,
//     until [Engine.Retry], [Engine.Skip] or [Engine.Cancel].
//   - A run whose definition, step or request this release does not know is
//     [Parked]: reported, never skipped, and it blocks only its own resource.
//   - No timer delays a commit: transitions that come together share one, a
//     transition that comes alone is committed at once.
//
// A step has to handle being executed twice itself: one that was interrupted
// asks the world first what it has done.
//
// # Goroutines and locks
//
// [Engine.Run] owns every goroutine that executes a step and returns when the
// last has ended. A run that executes has one goroutine; one that waits, for
// its turn, its time or its next attempt, has none. [Define].Start uses the
// goroutine that will execute the run to wait until it is durable.
//
// Locks, in the order in which they are taken: a run's turn (held by the goroutine that
// writes its next record, until that is durable), the engine's mutex (over
// maps and queues, and Journal.Submit, which does not block), the journal's
// own. Steps, writes of transactions, Config.Observe and log handlers are
// called with none of the engine's locks held.
package fsm
