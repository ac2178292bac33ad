package proxy

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// load sends requests at a constant rate, whether or not they are answered.
type load struct {
	ask  func(i int) error
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	asked    int
	failed   []error
	answered []time.Time
	changed  chan struct{} // closed when a request ends
}

// startLoad sends requests at the given rate per second until the load is stopped.
func startLoad(perSecond int, ask func(i int) error) *load {
	l := &load{ask: ask, stop: make(chan struct{}), changed: make(chan struct{})}
	l.done.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			case <-tick.C:
				l.done.Go(func() { l.one(i) })
			}
		}
	})
	return l
}

func (l *load) one(i int) {
	l.mu.Lock()
	l.asked++
	l.mu.Unlock()
	err := l.ask(i)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("request %d: %w", i, err))
	}
	l.answered = append(l.answered, time.Now())
	close(l.changed)
	l.changed = make(chan struct{})
}

// more waits until n more requests have ended.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	late := time.After(waitTimeout)
	l.mu.Lock()
	want := len(l.answered) + n
	l.mu.Unlock()
	for {
		l.mu.Lock()
		have, changed := len(l.answered), l.changed
		l.mu.Unlock()
		if have >= want {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d requests have ended, want %d within %v", have, want, waitTimeout)
		}
	}
}

// end stops sending requests, waits for all replies, and reports failures.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	for _, err := range l.failed[:min(len(l.failed), 5)] {
		t.Error(err)
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, want none", len(l.failed), l.asked)
	}
	gap := time.Duration(0)
	slices.SortFunc(l.answered, time.Time.Compare)
	for i := range l.answered[1:] {
		gap = max(gap, l.answered[i+1].Sub(l.answered[i]))
	}
	t.Logf("%d requests, longest time without an answer %v", l.asked, gap.Round(time.Millisecond))
}
