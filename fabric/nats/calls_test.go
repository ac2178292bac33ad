package nats_test

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

// TestManyCalls makes calls of which many are canceled, some break off and some
// are turned away: what each caller hears agrees with what the handler saw, and
// in the end nothing is left of any.
func TestManyCalls(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := &seen{times: map[string]int{}, done: map[string]bool{}}
	w := n.Serve("w1", s)
	n.links[0].TakesAtOnce(24)
	var wg sync.WaitGroup
	for c := range 32 {
		wg.Go(func() {
			for i := range 100 {
				name := strconv.Itoa(c) + "/" + strconv.Itoa(i)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if rand.N(3) == 0 {
					time.AfterFunc(time.Duration(rand.N(2000))*time.Microsecond, cancel)
				}
				a, err := send(ctx, n, w, name)
				cancel()
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
				case bourse.CodeOf(err) == bourse.CodeTimeout && (done || times == 0):
					t.Errorf("%s: %v, seen %d times, done: %v", name, err, times, done)
				}
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(patience); ; {
		mine, _ := n.fabric.Link.Calls()
		_, theirs := n.links[0].Calls()
		if mine+theirs == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls are left, %d are served", mine, theirs)
		}
	}
	if got := n.fabric.Link.Counts(); got.Strange > 0 {
		t.Errorf("counted %+v", got)
	}
}
