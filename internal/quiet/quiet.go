// Package quiet limits how often a repeated line is logged.
package quiet

import (
	"sync"
	"time"
)

// Period is the shortest time between two repeated lines.
const Period = time.Minute

// Line limits a repeated line to one in each period of [Period], and counts the suppressed lines. It
// is safe for concurrent use, and its zero value is ready to use.
type Line struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Due reports whether the line may be logged now. If so, it also returns the number of lines that
// were suppressed since the last logged one.
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

// Lines limits many kinds of lines, identified by keys, to one line each in a period of
// [Period]. It is safe for concurrent use, and its zero value is ready to use.
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
