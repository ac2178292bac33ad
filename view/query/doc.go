// Package query answers SQL asked of the view, by people and programs that are
// not trusted with more than reading.
//
// A [Engine] runs statements on read-only connections of its own, so that no
// question holds up the view's writer, and streams what they find as lines of
// JSON (wire.go has the format). A subscription is a statement that is run
// again whenever a table that it reads has changed: its readers are sent the
// difference.
//
// It promises that
//   - nothing is ever written: the file is opened read-only, SQLite's
//     authorizer refuses all but reading, and what is secret cannot be read;
//   - every statement ends: time, rows, bytes, memory and the number of
//     statements at once are bounded. Interrupts reach a statement that runs,
//     the allocator (heap.go) one that is still being prepared. What
//     neither can reach, straight code without a loop, is bounded by the size
//     of the statement: a hostile one may overrun its time by some seconds of
//     one processor. BoundMemory puts the allocator in place, for the whole
//     process, before anyone opens a connection;
//   - a reader that follows the changes, and resumes after the last one that
//     it got, holds exactly the statement's result;
//   - the view's file may be replaced at any time: what is asked in between
//     fails as unavailable, and connections are opened again.
//
// Goroutines: [Engine.Run] owns one for each subscription; a question runs on
// its caller's. Locks: Engine.mu before subscription.mu; none is held over
// SQLite or a write.
package query
