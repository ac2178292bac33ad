package nats_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// sticks makes a call that does not return, waits until it has arrived, and returns a channel
// for its outcome.
func sticks(t *testing.T, s *fabrictest.Stuck, n *network) (w fabrictest.Worker, outcome <-chan error) {
	t.Helper()
	w = n.Serve("w1", s)
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := fabrictest.Send(ctx, n.fabric, w.Member, "{}")
		got <- err
	}()
	await(t, s.Arrived)
	return w, got
}

func await(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("timed out")
	}
}

// lost checks that a call's answer is soon reported as lost.
func lost(t *testing.T, outcome <-chan error, since time.Time) {
	t.Helper()
	if err := <-outcome; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("got %v, want timeout", err)
	}
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("the loss was reported after %s", took)
	}
}

// TestAnswers checks that answers of any size arrive complete.
func TestAnswers(t *testing.T) {
	for name, most := range map[string]int32{"usual": 0, "small": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			s := serverWith(t, &server.Options{MaxPayload: most})
			n := newNetwork(t, s.ClientURL(), false, nil)
			reply := bytes.Repeat([]byte("0123456789abcdef!"), 1<<18)
			w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				size, _ := strconv.Atoi(string(text))
				_, _ = w.Write(reply[:size])
			}))
			for _, size := range []int{0, 1, 4 << 10, 64 << 10, 64<<10 + 1, 3 << 20} {
				a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, strconv.Itoa(size))
				if err != nil || a.Status != http.StatusOK || !bytes.Equal(a.Body, reply[:size]) {
					t.Errorf("%d bytes: got %d, status %d, %v", size, len(a.Body), a.Status, err)
				}
			}
			if got := n.fabric.Link.Counts(); got.Malformed+got.Oversized > 0 {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

// TestCallerDies checks that a worker cancels the calls of a caller that has disappeared.
func TestCallerDies(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	_, outcome := sticks(t, s, n)
	n.fabric.Link.Cut()
	if err := <-outcome; err == nil || bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Errorf("the caller got %v", err)
	}
	await(t, s.Left)
}

// TestCalledDies checks that the answers to calls in progress count as lost once their worker has disappeared.
func TestCalledDies(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	w, outcome := sticks(t, s, n)
	began := time.Now()
	w.Kill()
	lost(t, outcome, began)
	await(t, s.Left)
}

// TestCallNATSRestarts checks that restarting the NATS server during a call leaves the outcome
// unknown, and that the worker notices the break.
func TestCallNATSRestarts(t *testing.T) {
	s := serverWith(t, &server.Options{})
	n := newNetwork(t, s.ClientURL(), false, nil)
	h := fabrictest.NewStuck()
	w, outcome := sticks(t, h, n)
	began := time.Now()
	s.Shutdown()
	s.WaitForShutdown()
	lost(t, outcome, began)
	await(t, h.Left)
	if _, _, err := (fabric.Trader{Fabric: n.Fabric()}).Claim(t.Context(), w.Member, &bourse.Claim{}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("without NATS: %v", err)
	}
}

// TestManyCalls makes calls, many of which are canceled or aborted. Every caller's result
// must agree with what the handler saw.
func TestManyCalls(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewSeen()
	w := n.Serve("w1", s)
	fabrictest.SendMany(t, n.fabric, w.Member, s, 100, true)
	if got := n.fabric.Link.Counts(); got.Malformed > 0 {
		t.Errorf("counted %+v", got)
	}
}
