// Package quiet limits how often a repeated line is logged.
package quiet

import (
	"sync"
	"time"
)

// Period is the minimum time between two logged copies of the same line.
const Period = time.Minute

// Line allows a repeated line to be logged once per [Period], and counts the suppressed copies. It
// is safe for concurrent use, and its zero value is ready to use.
type Line struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Due reports whether the line may be logged now. If so, it also returns how many copies were
// suppressed since the line was last logged.
func (l *Line) Due() (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed, l.next = l.suppressed, 0, now.Add(Period)
	return suppressed, true
}

// maxLines is the maximum number of keys in memory.
const maxLines = 256

// Lines is like [Line] for many kinds of lines, each identified by a key, but does not count
// suppressed copies. It is safe for concurrent use, and its zero value is ready to use.
type Lines struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// Due reports whether a line with this key may be logged now.
func (l *Lines) Due(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next[key]) {
		return false
	}
	if l.next == nil || len(l.next) >= maxLines { // an unnecessary line is better than using more memory
		l.next = map[string]time.Time{}
	}
	l.next[key] = now.Add(Period)
	return true
}
