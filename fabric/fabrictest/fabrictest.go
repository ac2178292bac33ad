// Package fabrictest is the suite that every fabric passes: what the market
// and the broker rely on when they ask, claim and forward.
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

// Network is one fabric with workers on it. What it makes ends with the test.
type Network interface {
	// Fabric returns the broker's end.
	Fabric() fabric.Fabric
	// Serve has h answer as the worker with this id.
	Serve(id bourse.WorkerID, h http.Handler) Worker
}

// Worker is the other end of a Network.
type Worker struct {
	Member bourse.Member
	// Kill ends the worker as SIGKILL would: its connections break, nothing
	// listens any more. It does not wait for handlers.
	Kill func()
}

// patience bounds everything that should happen soon.
const patience = 20 * time.Second

// Run runs the suite with a new network for each test.
func Run(t *testing.T, open func(t *testing.T) Network) {
	runCases(t, open, cases)
	RunAsk(t, open)
}

// RunAsk runs only the part of the suite about requests for quotes, for a fabric that
// differs from a tested one in nothing else.
func RunAsk(t *testing.T, open func(t *testing.T) Network) { runCases(t, open, askCases) }

type testCase struct {
	name string
	test func(*testing.T, Network)
}

var (
	cases = []testCase{
		{"a request arrives whole and so does its reply", testEcho},
		{"any id arrives as it is", testIDs},
		{"large bodies pass both ways", testLarge},
		{"a reply streams", testStream},
		{"every error comes back as it was", testErrors},
		{"a thousand calls at once do not mix", testMany},
		{"a caller that leaves ends the handler", testCallerLeaves},
		{"a reader that leaves ends the handler", testReaderLeaves},
		{"a call that never began is unavailable", testNeverBegan},
		{"a worker that is not there is unavailable", testNotThere},
		{"a request never reaches another worker", testOtherWorker},
		{"a worker that comes back is reached at once", testComesBack},
		{"a dropped connection leaves the outcome unknown", testDropped},
		{"a worker killed in the middle leaves the outcome unknown", testKilled},
		{"a reply cut short leaves the outcome unknown", testCutShort},
		{"a worker that hangs runs into the deadline", testHangs},
		{"a body and its reply pass side by side", testBothWays},
		{"a body and its reply take turns", testTurns},
		{"a body without end does not keep a refusal", testRefusedStream},
		{"a caller that leaves a stream ends its handler", testStreamCallerLeaves},
		{"a worker that leaves a stream breaks it", testStreamWorkerDies},
		{"a stream that no one reads holds up no other", testSlowReaders},
		{"a command's input and output stream", testExec},
		{"a command's terminal changes its size", testExecTerminal},
		{"a command's end is reported", testExecEnds},
		{"a tunnel carries bytes both ways", testTunnel},
		{"a tunnel is a connection", testTunnelConn},
	}
	askCases = []testCase{
		{"quotes come from those who can send one", testAsk},
		{"asking ends with the last answer", testAskEnds},
		{"asking no one ends at once", testAskNobody},
	}
)

func runCases(t *testing.T, open func(t *testing.T) Network, cases []testCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			// A server waits for half a second after a request whose body it did not read.
			lingers := goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")
			t.Cleanup(func() { goleak.VerifyNone(t, before, lingers) }) // runs after the network's own cleanups
			tt.test(t, open(t))
		})
	}
}

// soon is a context for what should not take long.
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
		t.Fatalf("waited in vain for %s", what)
	}
}

func wantCode(t *testing.T, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); got != want {
		t.Fatalf("got code %q (%v), want %q", got, err, want)
	}
}

// wantUnknown wants an error after which the worker may have acted.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Fatalf("got %v (code %q), want an error that leaves the outcome open", err, bourse.CodeOf(err))
	}
}
