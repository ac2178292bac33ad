package fabrictest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// hang returns a handler that does not respond until its caller has disconnected.
func hang(arrived, left chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
		close(left)
	})
}

func testCallerLeaves(t *testing.T, n Network) {
	for what, call := range map[string]func(context.Context, fabric.Fabric, bourse.Member) error{
		"a question": func(ctx context.Context, f fabric.Fabric, to bourse.Member) error {
			_, err := fabric.WorkerFacts.Call(ctx, f, to, struct{}{})
			return err
		},
		"an act": func(ctx context.Context, f fabric.Fabric, to bourse.Member) error {
			_, err := fabric.OrderClaim.Call(ctx, f, to, bourse.Claim{})
			return err
		},
	} {
		arrived, left := make(chan struct{}), make(chan struct{})
		w := n.Serve("w1", hang(arrived, left))
		ctx, leave := context.WithCancel(soon(t))
		go func() {
			<-arrived
			leave()
		}()
		wantCode(t, call(ctx, n.Fabric(), w.Member), bourse.CodeCanceled)
		await(t, "the handler to notice that the caller of "+what+" disconnected", left)
	}
}

func testReaderLeaves(t *testing.T, n Network) {
	left := make(chan struct{})
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "the beginning\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	resp, err := n.Fabric().Call(soon(t), w.Member, post("{}"))
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	resp.Body.Close()
	await(t, "the handler to notice that the reader disconnected", left)
}

func testNeverBegan(t *testing.T, n Network) {
	w := n.Serve("w1", never(t))
	ctx, leave := context.WithCancel(soon(t))
	leave()
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
	wantCode(t, err, bourse.CodeUnavailable)
}

// never returns a handler that fails the test if it receives a request.
func never(t *testing.T) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the worker received %s", r.URL) })
}

func testNotThere(t *testing.T, n Network) {
	w := n.Serve("w1", never(t))
	w.Kill()
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(soon(t), w.Member, &bourse.Claim{})
	wantCode(t, err, bourse.CodeUnavailable)
}

func testOtherWorker(t *testing.T, n Network) {
	w := n.Serve("w1", never(t))
	gone := w.Member
	gone.ID = "w0" // a worker that used to have this address
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(soon(t), gone, &bourse.Claim{})
	wantCode(t, err, bourse.CodeUnavailable)
}

func testComesBack(t *testing.T, n Network) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	before := n.Serve("w1", ok)
	if err := echo(soon(t), n.Fabric(), before.Member, "before"); err != nil {
		t.Fatalf("before: %v", err)
	}
	before.Kill()
	after := n.Serve("w1", ok) // the same worker at another address
	if err := echo(soon(t), n.Fabric(), after.Member, "after"); err != nil {
		t.Fatalf("after: %v", err)
	}
}

func testDropped(t *testing.T, n Network) {
	var times atomic.Int32
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasPrefix(string(body), "call") {
			_, _ = w.Write(body)
			return
		}
		times.Add(1)
		panic(http.ErrAbortHandler)
	}))
	for _, connection := range []string{"new", "reused"} {
		times.Store(0)
		ctx, cancel := context.WithTimeout(soon(t), time.Second) // some fabrics notice a broken connection only because nothing arrives
		_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
		cancel()
		wantUnknown(t, err)
		if got := times.Load(); got != 1 {
			t.Errorf("%s connection: the worker received the claim %d times, want 1", connection, got)
		}
		if err := echo(soon(t), n.Fabric(), w.Member, "call"); err != nil {
			t.Errorf("%s connection: call after the lost one: %v", connection, err)
		}
	}
}

func testKilled(t *testing.T, n Network) {
	arrived, left := make(chan struct{}), make(chan struct{})
	w := n.Serve("w1", hang(arrived, left))
	ctx, cancel := context.WithTimeout(soon(t), 2*time.Second)
	defer cancel()
	go func() {
		<-arrived
		w.Kill()
	}()
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
	wantUnknown(t, err)
	await(t, "the handler to end", left)
}

func testCutShort(t *testing.T, n Network) {
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"fill":{"machine":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	ctx, cancel := context.WithTimeout(soon(t), time.Second)
	defer cancel()
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
	wantUnknown(t, err)
}

func testHangs(t *testing.T, n Network) {
	arrived, left := make(chan struct{}), make(chan struct{})
	w := n.Serve("w1", hang(arrived, left))
	ctx, cancel := context.WithTimeout(soon(t), 200*time.Millisecond)
	defer cancel()
	_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
	wantCode(t, err, bourse.CodeTimeout)
	await(t, "the handler to notice that the caller disconnected", left)
}
