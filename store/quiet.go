package store

import (
	"sync"
	"time"
)

// quietFor is how long a line that is repeated is kept from the log.
const quietFor = time.Minute

// quiet has one line of a kind written into the log in quietFor, and counts
// those that were not: a disk stays full for a thousand commits.
type quiet struct {
	mu   sync.Mutex
	next time.Time
	kept int
}

// due reports whether a line may be written now, and how many were not since
// the last one that was.
func (q *quiet) due() (kept int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Before(q.next) {
		q.kept++
		return 0, false
	}
	kept, q.kept, q.next = q.kept, 0, now.Add(quietFor)
	return kept, true
}
