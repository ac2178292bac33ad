package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/fabric/nats"
)

// sticks makes a call that hangs, and returns its outcome once it has
// arrived.
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
		t.Fatal("waited in vain")
	}
}

// lost checks that the answer of a call is lost, and soon.
func lost(t *testing.T, outcome <-chan error, since time.Time) {
	t.Helper()
	if err := <-outcome; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("got %v, want the answer lost", err)
	}
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("it was known after %s", took)
	}
}

// TestCall shows what a handler sees of a call, and its caller of the answer.
func TestCall(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	var got http.Request
	var body []byte
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = *r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "the answer")
	}))
	a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "the request")
	if err != nil || a.Status != http.StatusAccepted || string(a.Body) != "the answer" {
		t.Errorf("got %d %q, %v", a.Status, a.Body, err)
	}
	if got.Method != http.MethodPost || got.URL.Path != "/worker/claim" || got.URL.RawQuery != "a=1" || got.ContentLength != 11 || string(body) != "the request" {
		t.Errorf("the handler saw %s %s, %d bytes: %q", got.Method, got.URL, got.ContentLength, body)
	}
}

// TestAnswers shows that answers of any size arrive complete.
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
			limit := nats.MaxPart
			if most > 0 {
				limit = int(most) - 11
			}
			for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 2 * limit, 2*limit + 1, 3 << 20} {
				a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, strconv.Itoa(size))
				if err != nil || a.Status != http.StatusOK || !bytes.Equal(a.Body, reply[:size]) {
					t.Errorf("%d bytes: got %d, status %d, %v", size, len(a.Body), a.Status, err)
				}
			}
			if got := n.fabric.Link.Counts(); got.Strange+got.Oversized+got.Late > 0 {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

// TestCallTooLarge shows that what is too large for a message goes over a
// connection, and so do calls to a worker that takes none.
func TestCallTooLarge(t *testing.T) {
	n := newNetwork(t, serverWith(t, maxPayload(4<<10)).ClientURL(), false, nil)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c bourse.Claim
		if err := fabric.ReadBody(w, r, &c); err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		fabric.WriteBody(w, fabric.ClaimReply{Refusal: &bourse.Refusal{Worker: "w1", Detail: r.Proto + strconv.Itoa(len(c.Order.Config.Init.Exec))}})
	})
	w := n.Serve("w1", h)
	n.noCalls = true
	older := n.Serve("w1", h)
	large := &bourse.Claim{Order: bourse.Order{Config: bourse.Config{Init: bourse.Init{Exec: make([]string, 4<<10)}}}}
	for name, c := range map[string]struct {
		claim *bourse.Claim
		to    fabrictest.Worker
		want  string
	}{
		"small": {&bourse.Claim{}, w, "HTTP/1.10"}, "large": {large, w, "HTTP/1.14096"}, "to one that takes no calls": {&bourse.Claim{}, older, "HTTP/1.10"},
	} {
		_, refusal, err := fabric.NewClient(n.Fabric()).Claim(t.Context(), c.to.Member, c.claim)
		if err != nil || refusal == nil || refusal.Detail != c.want {
			t.Errorf("%s: got %+v, %v", name, refusal, err)
		}
		_, sent, _ := n.fabric.Send(t.Context(), c.to.Member, &fabric.Message{Method: http.MethodPost, URI: "/", Body: make([]byte, 2<<10)})
		if sent {
			t.Errorf("%s: a call of half of what NATS takes is sent as a message", name)
		}
	}
}

// TestCallerDies shows that a worker cancels the calls of a caller that has
// vanished.
func TestCallerDies(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	_, outcome := sticks(t, s, n)
	n.fabric.Link.Cut()
	if err := <-outcome; err == nil || bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Errorf("the caller has %v", err)
	}
	await(t, s.Left)
}

// TestCalledDies shows that the answers of a worker that has gone are lost.
func TestCalledDies(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	w, outcome := sticks(t, s, n)
	began := time.Now()
	w.Kill()
	lost(t, outcome, began)
	await(t, s.Left)
}

// TestSilent shows that the answer of a process that is stopped is lost after
// a while, though NATS still knows it.
func TestSilent(t *testing.T) {
	url := embedded(t)
	n := newNetwork(t, url, false, nil)
	other, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, subject := range []string{"bourse.test.call.*", "bourse.test.at.fd6e61747300000000000000000000aa.>"} {
		if _, err := other.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	outcome := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = fabrictest.Send(ctx, n.fabric, bourse.Member{ID: "w1", Address: "[fd6e:6174:7300::aa]:1"}, "{}")
	outcome <- err
	lost(t, outcome, began)
}

// TestForgotten shows that a call that either end does not know, because
// messages were lost on the way, ends at the other.
func TestForgotten(t *testing.T) {
	t.Run("by the worker", func(t *testing.T) {
		n := newNetwork(t, embedded(t), false, nil)
		s := fabrictest.NewStuck()
		_, outcome := sticks(t, s, n)
		began := time.Now()
		n.links[0].Forget()
		lost(t, outcome, began)
	})
	t.Run("by the caller", func(t *testing.T) {
		n := newNetwork(t, embedded(t), false, nil)
		s := fabrictest.NewStuck()
		w := n.Serve("w1", s)
		ctx, leave := context.WithCancel(t.Context())
		outcome := make(chan error, 1)
		go func() {
			_, err := fabrictest.Send(ctx, n.fabric, w.Member, "{}")
			outcome <- err
		}()
		await(t, s.Arrived)
		n.fabric.Link.Forget()
		await(t, s.Left)
		n.links[0].Close()
		n.fabric.Link.Close()
		leave()
	})
}

// TestCallNATSRestarts shows that a NATS server that ends in the middle leaves
// the outcome unknown, and that the worker notices.
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
	if _, _, err := fabric.NewClient(n.Fabric()).Claim(t.Context(), w.Member, &bourse.Claim{}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("without NATS: %v", err)
	}
}

// TestTooManyCalls shows that a call too many is turned away at once.
func TestTooManyCalls(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	w := n.Serve("w1", s)
	n.links[0].TakesAtOnce(1)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := fabrictest.Send(ctx, n.fabric, w.Member, "{}")
		done <- err
	}()
	await(t, s.Arrived)
	_, _, err := fabric.NewClient(n.Fabric()).Claim(t.Context(), w.Member, &bourse.Claim{})
	if bourse.CodeOf(err) != bourse.CodeUnavailable || n.links[0].Dropped.Load() != 1 {
		t.Errorf("got %v, %d counted", err, n.links[0].Dropped.Load())
	}
	leave()
	if err := <-done; bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("the first: %v", err)
	}
	await(t, s.Left)
}

// TestCallsEnd shows that a worker which ends allows calls in progress a while,
// and takes no more.
func TestCallsEnd(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	arrived, finish := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(finish) })
	defer release()
	once := sync.OnceFunc(func() { close(arrived) })
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once()
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	answered := make(chan error, 1)
	go func() {
		a, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "{}")
		if err == nil && string(a.Body) != "done" {
			err = fmt.Errorf("answered %q", a.Body)
		}
		answered <- err
	}()
	await(t, arrived)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.stops[0]()
	}()
	for turned := false; !turned; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // until it takes no more
		a, err := fabrictest.Send(ctx, n.fabric, w.Member, "{}")
		cancel()
		turned = err == nil && a.Status == http.StatusServiceUnavailable
	}
	release()
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	await(t, ended)
}

// TestCallsCut shows that a handler which goes on is canceled when its worker
// ends, and a caller's calls end with its link.
func TestCallsCut(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewStuck()
	_, outcome := sticks(t, s, n)
	n.stops[0]()
	await(t, s.Left)
	if err := <-outcome; err != nil {
		t.Errorf("the handler answered, and the caller has %v", err)
	}
	s = fabrictest.NewStuck()
	_, outcome = sticks(t, s, n)
	n.fabric.Link.Close()
	if err := <-outcome; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("a call of a link that was closed: %v", err)
	}
	await(t, s.Left)
}

// TestHandlerPanics shows that a handler that breaks off leaves the outcome
// unknown, and its worker alive.
func TestHandlerPanics(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	w := n.Serve("w1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != "well" {
			panic("a bug")
		}
	}))
	began := time.Now()
	outcome := make(chan error, 1)
	_, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "{}")
	outcome <- err
	lost(t, outcome, began)
	if _, err := fabrictest.Send(t.Context(), n.fabric, w.Member, "well"); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// messenger is a fabric that counts the messages that it is given.
type messenger struct {
	fabric.Fabric
	to []bourse.WorkerID
}

func (m *messenger) Send(_ context.Context, to bourse.Member, _ *fabric.Message) (fabric.Answer, bool, error) {
	m.to = append(m.to, to.ID)
	return fabric.Answer{Status: http.StatusOK}, true, nil
}

// TestMessagesOfTheCaller shows that messages to workers that are not on NATS,
// and those that must prove where they lead, are the caller's.
func TestMessagesOfTheCaller(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	w := n.Serve("w1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var m messenger
	n.fabric.Caller = &m
	elsewhere := fabrictest.Worker{Member: bourse.Member{ID: "w2", Address: "192.0.2.1:1"}}
	for _, private := range []bool{false, true} {
		n.fabric.Private = private
		for _, to := range []fabrictest.Worker{w, elsewhere} {
			if a, err := fabrictest.Send(t.Context(), n.fabric, to.Member, "{}"); err != nil || a.Status != http.StatusOK {
				t.Errorf("to %s: got %d, %v", to.Member.ID, a.Status, err)
			}
		}
	}
	if want := []bourse.WorkerID{"w2", "w1", "w2"}; !slices.Equal(m.to, want) {
		t.Errorf("the caller was given messages to %v, want %v", m.to, want)
	}
}
