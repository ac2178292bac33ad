// Package warm implements frames, the cheap protocol between a worker and the
// program of a machine that is warm for a task (docs/tasks.md). Both ends are
// here: a program serves with [Serve], a worker calls with [Conn].
//
// One connection carries many calls at once, answered in any order. A goroutine that has
// something to write appends it to the connection's buffer; if no one is writing,
// it writes, for all, without ever waiting for the other side: what
// does not go is left to a goroutine that lasts until it has gone. One goroutine
// for each connection reads.
//
// # Promises
//
//   - A call ends at its deadline, or with its context, whatever the other side
//     does; an answer that comes later is dropped.
//   - A connection that breaks, or that carries anything but frames,
//     ends its calls and no others. Such a call's error says whether a
//     byte of it had left ([NotSent]).
//   - Nothing on the wire makes either side keep more than the bounds of
//     bourse.MaxPayload, bourse.MaxAnswer and its own concurrency allow.
//
// # Concurrency
//
// A Conn has two locks, of its calls and of its writer; neither is held while
// the other is taken, nor over a write. Its goroutines end with [Conn.Close] or
// with the connection. All goroutines of Serve, and with them all handlers, have
// ended when it returns.
package warm
