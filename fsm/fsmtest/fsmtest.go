// Package fsmtest contains a test suite for implementations of fsm.Journal, and an in-memory journal.
//
// The tests run in synctest bubbles, so delays, backoffs and deadlines take no real time, and a run
// that waits forever fails its test immediately.
package fsmtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse/fsm"
)

// Disk stores a journal across restarts of the process. It can simulate killing the process at a given commit.
type Disk interface {
	// Open returns a journal with the durable records. To have the process killed, the suite calls KillAt before Open.
	Open(t testing.TB) fsm.Journal
	// Close stops the process that opened the journal, or simulates doing so. Records that are not durable are lost.
	Close(t testing.TB)
	// KillAt makes the process die at the n-th commit after the next Open: immediately after the commit has become durable
	// if after is true, and otherwise immediately before. If n is 0, the process does not die.
	KillAt(n int, after bool)
	// Commits returns the number of commits since the last Open.
	Commits() int
}

// Run runs the suite with journals on new disks.
func Run(t *testing.T, open func(t testing.TB) Disk) {
	tests := []struct {
		name string
		test func(t *testing.T, w *world)
	}{
		{"a run is restored from its own record alone", testOwnRecord},
		{"a run resumes as its own definition", testOwnDefinition},
		{"a resource's queue keeps its order across a restart", testQueueSurvives},
		{"queued and delayed runs can be canceled", testCancelWaiting},
		{"a failed run stays failed", testFailedStaysFailed},
		{"concurrent runs share commits", testShareCommits},
		{"a delayed run keeps its time across a restart", testDelaySurvives},
		{"a backing-off run keeps its time across a restart", testBackoffSurvives},
		{"an unknown definition or step is parked", testParked},
		{"a start is undone if its write fails", testStartUndone},
		{"a crash at any commit loses nothing", testCrashEverywhere},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x.test(t, &world{t: t, disk: open(t), fresh: open})
			})
		})
	}
	t.Run("random runs end as expected", func(t *testing.T) { testRandom(t, open) })
}

// world consists of a disk and the engine that currently uses it.
type world struct {
	t       testing.TB
	disk    Disk
	fresh   func(testing.TB) Disk
	engine  *fsm.Engine
	journal fsm.Journal
	observe func(fsm.Record)
	stop    context.CancelFunc
	ended   chan error
}

// boot starts an engine with the records on the disk.
func (w *world) boot(defs ...fsm.Definition) {
	w.t.Helper()
	w.open(defs...)
	w.run()
}

// open creates an engine without running it.
func (w *world) open(defs ...fsm.Definition) {
	w.journal = w.disk.Open(w.t)
	w.engine = fsm.New(fsm.Config{Journal: w.journal, Observe: w.observe})
	w.engine.Register(defs...)
}

func (w *world) run() {
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- w.engine.Run(ctx) }()
	<-w.engine.Resumed()
}

// halt stops the engine and its process.
func (w *world) halt() {
	w.t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("engine: %v", err)
	}
	w.disk.Close(w.t)
}

// timeout limits how long the suite waits for an event, in virtual time.
const timeout = time.Hour

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	w.t.Cleanup(cancel)
	return ctx
}

// end waits until a run has ended and returns its record.
func (w *world) end(id string) fsm.Record {
	w.t.Helper()
	rec, err := w.engine.Wait(w.ctx(), id)
	if err != nil {
		w.t.Fatalf("wait for run %s: %v", id, err)
	}
	return rec
}

// must returns a function that returns its first argument, and fails the test if its second argument is an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
