package direct_test

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
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// seen is what a handler has seen of calls, by their bodies.
type seen struct {
	mu    sync.Mutex
	times map[string]int
	done  map[string]bool // the handler ended by itself
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.times[string(body)]++
	n := len(s.times)
	s.mu.Unlock()
	if n%17 == 0 {
		panic(http.ErrAbortHandler)
	}
	if n%3 == 0 { // canceled, or done after a moment
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

// agrees compares what the sender of a message heard with what was seen.
func (s *seen) agrees(t *testing.T, name string, a fabric.Answer, err error) {
	s.mu.Lock()
	times, done := s.times[name], s.done[name]
	s.mu.Unlock()
	unsent := bourse.CodeOf(err) == bourse.CodeUnavailable || a.Status == http.StatusServiceUnavailable
	switch {
	case times > 1:
		t.Errorf("%s was seen %d times", name, times)
	case unsent && times > 0:
		t.Errorf("%s was unavailable (%v), and seen", name, err)
	case err == nil && !unsent && (!done || string(a.Body) != name):
		t.Errorf("%s was answered with %q, done: %v", name, a.Body, done)
	}
}

// TestManyCalls makes calls of which many are canceled and some break off, while
// their worker is killed and comes back again and again: what each caller hears
// agrees with what the handler saw, and in the end nothing is left of any.
func TestManyCalls(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		s := &seen{times: map[string]int{}, done: map[string]bool{}}
		w := n.Serve("w1", s)
		var wg sync.WaitGroup
		for c := range 32 {
			wg.Go(func() {
				for i := range 150 {
					name := strconv.Itoa(c) + "/" + strconv.Itoa(i)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					if rand.N(3) == 0 {
						time.AfterFunc(time.Duration(rand.N(2000))*time.Microsecond, cancel)
					}
					a, err := send(ctx, n.fabric, w.Member, name)
					cancel()
					s.agrees(t, name, a, err)
				}
			})
		}
		stop := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() { kills(n, &w, s, stop) })
		wg.Wait()
		close(stop)
		chaos.Wait()
		if left := n.fabric.Calls(); left > 0 {
			t.Errorf("%d calls are left", left)
		}
	})
}

// kills kills the worker and starts it again at its address.
func kills(n *network, w *fabrictest.Worker, h http.Handler, stop <-chan struct{}) {
	now := *w
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		now.Kill()
		n.at = w.Member.Address
		now = n.Serve(w.Member.ID, h)
	}
}
