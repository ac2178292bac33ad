package proxy

import (
	"sync"

	"github.com/bourse-dev/bourse/proxy/route"
)

// waiting bounds how many requests wait for machines of one target.
type waiting struct {
	most int

	mu      sync.Mutex
	targets map[route.Key]int
}

// enter counts a request, unless there are too many.
func (w *waiting) enter(t *route.Target) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := t.Key()
	if w.targets == nil {
		w.targets = map[route.Key]int{}
	}
	if w.targets[at] >= w.most {
		return false
	}
	w.targets[at]++
	return true
}

func (w *waiting) leave(t *route.Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := t.Key()
	if w.targets[at]--; w.targets[at] == 0 {
		delete(w.targets, at)
	}
}
