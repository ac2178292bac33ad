package quiet

import (
	"sync"
	"time"
)

// maxLines bounds how many lines are remembered.
const maxLines = 256

// Lines has each of many lines written into the log once in [For]. It is safe
// for concurrent use; its zero value is ready.
type Lines struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// Due reports whether a line with this key may be written now.
func (l *Lines) Due(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next[key]) {
		return false
	}
	if l.next == nil || len(l.next) >= maxLines { // forget all: rather a line too many
		l.next = map[string]time.Time{}
	}
	l.next[key] = now.Add(For)
	return true
}
