// Package query answers SQL queries about the view. Callers may read the view, but they may not
// write to it or use unlimited resources.
//
// An [Engine] runs statements on its own read-only connections, so that queries do not block the view's writer. It
// streams results as lines of JSON (wire.go describes the format). A subscription is a statement that runs again
// whenever a table that it reads has changed. Its readers receive the differences between the results.
//
// Guarantees:
//   - Statements cannot write, and cannot read secrets. The file is opened read-only, and SQLite's authorizer permits
//     only reads of columns that do not contain secrets.
//   - Every statement ends. Time, rows, bytes, memory and the number of concurrent statements are
//     limited. Interrupts stop a running statement, and the allocator (heap.go) stops one that is
//     still being prepared. Neither can stop code without loops. However, the limit on a
//     statement's length also limits how long such code can run: a malicious statement exceeds its
//     time limit by at most a few seconds of processor time. BoundMemory must install the allocator
//     before the process opens any connection.
//   - A reader that applies the changes always has the statement's exact result, even if it disconnects and
//     resumes after the last change that it has received.
//   - The view's file may be replaced at any time. Queries during the replacement fail with the code unavailable.
//     Later queries use new connections.
//
// Goroutines: [Engine.Run] starts one goroutine for each subscription. A query runs on its caller's goroutine.
// Locks: Engine.mu is locked before subscription.mu. No lock is held during SQLite calls or writes to clients.
package query
