// Package quiet keeps a line that is repeated from filling a log.
package quiet

import (
	"sync"
	"time"
)

// For is how long a line that is repeated is kept from the log.
const For = time.Minute

// Line has one line of a kind written into the log in [For], and counts those
// that were not: a disk stays full for a thousand commits. It is safe for
// concurrent use; its zero value is ready.
type Line struct {
	mu   sync.Mutex
	next time.Time
	kept int
}

// Due reports whether a line may be written now, and how many were not since
// the last one that was.
func (l *Line) Due() (kept int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.kept++
		return 0, false
	}
	kept, l.kept, l.next = l.kept, 0, now.Add(For)
	return kept, true
}
