// Package fabrictest is a test suite for fabrics. It tests the properties that the market and the broker rely on when
// they request quotes, claim orders and forward requests.
package fabrictest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Network is a fabric with workers. Everything that it creates is removed at the end of the
// test.
type Network interface {
	// Fabric returns the broker's end of the network.
	Fabric() fabric.Fabric
	// Serve adds a worker with this ID whose requests are handled by h.
	Serve(id bourse.WorkerID, h http.Handler) Worker
}

// Worker is a worker on a Network.
type Worker struct {
	Member bourse.Member
	// Kill ends the worker as SIGKILL would: its connections break, and its address stops accepting connections. It
	// does not wait for handlers.
	Kill func()
}

// patience is the time limit for each event that a test expects.
const patience = 20 * time.Second

// Run runs the suite with a new network for each test.
func Run(t *testing.T, open func(t *testing.T) Network) {
	runCases(t, open, cases)
	RunAsk(t, open)
}

// RunAsk runs only the tests of Ask. It is meant for a fabric that differs from an already tested fabric only in its
// Ask method.
func RunAsk(t *testing.T, open func(t *testing.T) Network) { runCases(t, open, askCases) }

type testCase struct {
	name string
	test func(*testing.T, Network)
}

var (
	cases = []testCase{
		{"requests and replies arrive complete", testEcho},
		{"any id arrives unchanged", testIDs},
		{"large bodies pass in both directions", testLarge},
		{"a reply streams", testStream},
		{"every error is returned unchanged", testErrors},
		{"a thousand calls do not mix", testMany},
		{"canceling a call ends the handler", testCallerLeaves},
		{"closing a reply ends the handler", testReaderLeaves},
		{"a call that was not sent is unavailable", testNeverBegan},
		{"a missing worker is unavailable", testNotThere},
		{"a request never reaches another worker", testOtherWorker},
		{"a restarted worker is reached immediately", testComesBack},
		{"a dropped connection leaves the outcome unknown", testDropped},
		{"a worker killed in the middle leaves the outcome unknown", testKilled},
		{"a reply cut short leaves the outcome unknown", testCutShort},
		{"a worker that hangs runs into the deadline", testHangs},
		{"body and reply are sent concurrently", testBothWays},
		{"body and reply can alternate", testTurns},
		{"an endless body does not delay a refusal", testRefusedStream},
		{"canceling a stream ends its handler", testStreamCallerLeaves},
		{"a killed worker breaks its streams", testStreamWorkerDies},
		{"an unread stream does not block others", testSlowReaders},
		{"a command's input and output stream", testExec},
		{"a command's terminal changes its size", testExecTerminal},
		{"a command's end is reported", testExecEnds},
		{"a tunnel carries bytes both ways", testTunnel},
		{"a tunnel is a connection", testTunnelConn},
	}
	askCases = []testCase{
		{"valid quotes are received", testAsk},
		{"asking ends with the last answer", testAskEnds},
		{"asking nobody returns immediately", testAskNobody},
	}
)

func runCases(t *testing.T, open func(t *testing.T) Network, cases []testCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			// If a handler has not read a request's body, the server waits half a second before
			// it closes the connection.
			lingers := goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")
			t.Cleanup(func() { goleak.VerifyNone(t, before, lingers) }) // runs after the network's own cleanups
			tt.test(t, open(t))
		})
	}
}

// soon returns a context with a deadline for operations that should be fast.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// await waits for a channel to be closed.
func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
}

func wantCode(t *testing.T, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); got != want {
		t.Fatalf("got code %q (%v), want %q", got, err, want)
	}
}

// wantUnknown fails the test unless err means that the worker may have acted.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Fatalf("got %v (code %q), want an error that leaves the outcome unknown", err, bourse.CodeOf(err))
	}
}
