package store

import (
	"log/slog"
	"sync"
	"time"
)

// quietFor is how long a line that is repeated is kept from the log.
const quietFor = time.Minute

// quiet writes one line of a kind into the log in quietFor, and says how many
// there were meanwhile: a disk stays full for a thousand commits.
type quiet struct {
	mu   sync.Mutex
	next time.Time
	kept int
}

func (q *quiet) error(log *slog.Logger, text string, args ...any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Before(q.next) {
		q.kept++
		return
	}
	if q.kept > 0 {
		args = append(args, "not_logged", q.kept)
	}
	q.next, q.kept = now.Add(quietFor), 0
	log.Error(text, args...)
}
