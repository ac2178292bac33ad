// Package mux carries concurrent calls over one connection. A caller makes them with a
// [Conn], and a [Server] answers them in any order.
//
// Frames are lines of ASCII, some of them followed by bytes (docs/tasks.md):
//
//	CALL id subject deadline length type    from a caller, followed by the payload
//	CANCEL id                               from a caller: it no longer waits for the answer
//	PING                                    from a caller
//	DONE id status length type              from a server, followed by the answer
//	LOST id                                 from a server: there will be no answer
//	PONG                                    from a server
//
// # Guarantees
//
//   - A call ends at its deadline or with its context, regardless of what the other end does, and the server is
//     notified. A later answer is dropped.
//   - If a connection breaks or carries malformed frames, only the calls on this connection fail. The error reports
//     whether a part of the call may have been sent ([NotSent]).
//   - The memory that the other end can make this end use is limited by [Limits], the number of calls in progress, and
//     the maximum backlog of a connection.
//
// # Writing
//
// A goroutine appends its frame to the connection's buffer. If no other goroutine is writing, it
// writes the whole buffer. A caller never waits for the other end to read: a separate goroutine
// writes the data that the system does not accept immediately ([Pipe]). On a server, a goroutine
// may wait for the other end to read.
//
// # Concurrency
//
// A Conn has one lock for its calls and one for its writer, and so does each connection of a Server. The Server has its
// own lock. No goroutine holds two of these locks at once, or holds one of them during I/O, except that a Pipe holds
// its lock during a write that does not block. When Run returns, all of a Conn's goroutines have exited. When Close
// returns, all of a Server's goroutines have exited, and all of its handlers have returned.
package mux
