// Package warm implements frames, the low-overhead protocol between a worker and the
// program of a machine that is warm for a task (docs/tasks.md). The program calls
// [Serve], and the worker makes calls with [Conn].
//
// A connection carries concurrent calls, which are answered in any order. See internal/mux for the frames and their
// guarantees. Each end limits the memory that the other end can make it use. The limit depends on bourse.MaxPayload,
// bourse.MaxAnswer and the concurrency of the end that uses the memory.
//
// A Conn has one goroutine, which exits when the connection is closed. If the program does not read data immediately, a
// second goroutine writes the data. When Serve returns, all of its goroutines and handlers have returned.
package warm
