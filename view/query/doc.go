// Package query answers SQL queries about the view. Callers are trusted to read the view, but not
// to write to it or to use unlimited resources.
//
// An [Engine] runs statements on its own read-only connections, so that queries do not block the view's writer. It
// streams results as lines of JSON (wire.go describes the format). A subscription is a statement that runs again
// whenever a table that it reads has changed; its readers receive the differences.
//
// Guarantees:
//   - Statements cannot write. The file is opened read-only, SQLite's authorizer permits only reads, and columns with
//     secrets cannot be read.
//   - Every statement ends. Time, rows, bytes, memory and the number of concurrent statements
//     are limited. Interrupts stop a running statement, and the allocator (heap.go) stops one
//     that is still being prepared. Neither can stop code without loops, but the limit on a
//     statement's size bounds its running time: a hostile statement exceeds its time limit by at
//     most a few seconds of one processor. BoundMemory installs the allocator for the whole
//     process, before anyone opens a connection.
//   - A reader that applies the changes, and resumes after the last change that it has received, has exactly the
//     statement's result.
//   - The view's file may be replaced at any time. Queries during the replacement fail as unavailable, and later ones
//     use new connections.
//
// Goroutines: [Engine.Run] owns one goroutine for each subscription. A query runs on its caller's goroutine. Locks:
// Engine.mu is locked before subscription.mu. No lock is held during SQLite calls or writes.
package query
