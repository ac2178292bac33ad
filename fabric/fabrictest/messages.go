package fabrictest

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Send sends a message with a body.
func Send(ctx context.Context, f fabric.Fabric, to bourse.Member, body string) (fabric.Answer, error) {
	return f.Send(ctx, to, &fabric.Message{Method: http.MethodPost, URI: "/worker/claim?a=1", Body: []byte(body)})
}

// Stuck is a handler for a single request, which does not respond until the request's context is done.
type Stuck struct {
	Arrived, Left chan struct{} // closed when the request arrives, and when the handler returns
	Cause         error         // why the context was canceled; valid once Left is closed
}

// NewStuck returns a Stuck that has not been called yet.
func NewStuck() *Stuck { return &Stuck{Arrived: make(chan struct{}), Left: make(chan struct{})} }

// ServeHTTP implements http.Handler.
func (s *Stuck) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	close(s.Arrived)
	<-r.Context().Done()
	s.Cause = context.Cause(r.Context())
	close(s.Left)
}

// Seen is a handler that records the bodies of its requests. It echoes most requests, some of them after a delay during
// which they may be canceled, and aborts the others.
type Seen struct {
	mu    sync.Mutex
	times map[string]int
	done  map[string]bool // requests whose handler returned normally
}

// NewSeen returns a Seen that has not been called yet.
func NewSeen() *Seen { return &Seen{times: map[string]int{}, done: map[string]bool{}} }

// ServeHTTP implements http.Handler.
func (s *Seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.times[string(body)]++
	n := len(s.times)
	s.mu.Unlock()
	if n%17 == 0 {
		panic(http.ErrAbortHandler)
	}
	if n%3 == 0 { // the caller may cancel some requests during this delay
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Duration(n%5) * time.Millisecond):
		}
	}
	s.mu.Lock()
	s.done[string(body)] = true
	s.mu.Unlock()
	_, _ = w.Write(body)
}

// SendMany starts 32 concurrent callers and waits for them. Each caller sends as many messages as the parameter each
// specifies, to a worker served by s. SendMany cancels about a third of the messages within two milliseconds, unless
// they have been answered by then. The results must be consistent with the requests that s has seen. If stays is true,
// the worker is not killed in the meantime, so an answer can be lost only if s has aborted the request.
func SendMany(t *testing.T, f fabric.Fabric, to bourse.Member, s *Seen, each int, stays bool) {
	t.Helper()
	var callers sync.WaitGroup
	for c := range 32 {
		callers.Go(func() {
			for i := range each {
				name := strconv.Itoa(c) + "/" + strconv.Itoa(i)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if rand.N(3) == 0 {
					time.AfterFunc(time.Duration(rand.N(2000))*time.Microsecond, cancel)
				}
				a, err := Send(ctx, f, to, name)
				cancel()
				s.agrees(t, name, a, err, stays)
			}
		})
	}
	callers.Wait()
}

// agrees checks that the result of a message is consistent with the requests that s has seen.
func (s *Seen) agrees(t *testing.T, name string, a fabric.Answer, err error, stays bool) {
	s.mu.Lock()
	times, done := s.times[name], s.done[name]
	s.mu.Unlock()
	unsent := bourse.CodeOf(err) == bourse.CodeUnavailable || a.Status == http.StatusServiceUnavailable
	switch {
	case times > 1:
		t.Errorf("%s: received %d times, want at most once", name, times)
	case unsent && times > 0:
		t.Errorf("%s: got %v, but the worker received the message", name, err)
	case err == nil && !unsent && (!done || string(a.Body) != name):
		t.Errorf("%s: got answer %q (handler done: %v), want the message", name, a.Body, done)
	case stays && bourse.CodeOf(err) == bourse.CodeTimeout && (done || times == 0):
		t.Errorf("%s: got %v, but the message was received %d times (handler done: %v)", name, err, times, done)
	}
}
