package gossiptest

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// Log is an io.Writer for log output, which can be read while it is being written.
type Log struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // closed when the next line is written; nil if nobody waits
}

// Write appends to the log. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.b.Write(p)
}

// Lines returns the number of times that a text occurs in the log.
func (l *Log) Lines(with string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), with)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Await waits until the log contains a text, but no longer than timeout. It reports whether the log contains the
// text.
func (l *Log) Await(timeout time.Duration, with string) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		l.mu.Lock()
		if l.written == nil {
			l.written = make(chan struct{})
		}
		written := l.written
		l.mu.Unlock()
		if l.Lines(with) > 0 {
			return true
		}
		select {
		case <-written:
		case <-timer.C:
			return false
		}
	}
}
