// Package admit decides whether a worker fills an order: what the order takes
// of it, and why it is refused. A [Host] is the worker as orders see it; what is
// taken already is read from the transaction that decides. Nothing here writes,
// waits for anything, or asks anyone but the parts of the host that answer
// within microseconds; the time is an argument. Only [Tries] remembers.
//
// A quote and the claim that follows it ask the same questions. The claim asks
// them in the transaction that takes, so no resource is ever sold twice
// (invariant 4), and a no names the worker, the resource, what was wanted and
// what was free (invariant 10).
package admit
