// Package mux carries many calls at once over one connection: a caller makes
// them with a [Conn], and a [Server] answers them, in any order.
//
// Frames are lines of ASCII, with bytes after them (docs/tasks.md):
//
//	CALL id subject deadline length type    of a caller, and the payload
//	CANCEL id                               of a caller: the answer is no longer waited for
//	PING                                    of a caller
//	DONE id status length type              of a server, and the answer
//	LOST id                                 of a server: there will be no answer
//	PONG                                    of a server
//
// # Promises
//
//   - A call ends at its deadline or with its context, whatever the other end
//     does, and the server is notified. An answer that comes later is dropped.
//   - A connection that breaks, or that carries anything but frames, ends its
//     calls and no others. The error reports whether anything of a call may have
//     left ([NotSent]).
//   - Nothing that the other end sends, or does not read, makes this end keep
//     more than [Limits], the backlog of a connection and the calls in progress
//     allow.
//
// # Who writes
//
// A goroutine that has a frame appends it to the connection's buffer; if no one
// is writing, it writes, for all. A caller never waits for the other end to read:
// what the system does not take at once is left to a goroutine that lasts until
// it has gone ([Pipe]). A server's goroutines may wait, as long as the other end
// reads something.
//
// # Concurrency
//
// A Conn has a lock for its calls and one for its writer; so has each connection
// of a Server, which has one of its own. No two of them are held together, and
// none while something is read or written, except a Pipe's for a write that does
// not wait. What a Conn has started has ended when Run returns. The goroutines of
// a Server, and with them all handlers, have ended when Close returns.
package mux
