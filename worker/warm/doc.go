// Package warm implements frames, the low-overhead protocol between a worker and the
// program of a machine that is warm for a task (docs/tasks.md). The program calls
// [Serve], and the worker makes calls with [Conn].
//
// A connection carries concurrent calls, which are answered in any order. See internal/mux for the frames and their
// guarantees. One end can make the other end use only a limited amount of memory, which depends on bourse.MaxPayload,
// bourse.MaxAnswer and the other end's concurrency.
//
// A Conn has one goroutine, which ends with the connection. If the program does not read data immediately, a second
// goroutine writes the data. When Serve returns, all of its goroutines and handlers have ended.
package warm
