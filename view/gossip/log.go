package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// often bounds how often the same line is logged: gossip repeats itself.
const often = time.Minute

// maxRepeats bounds how many lines are remembered for that.
const maxRepeats = 256

// quiet remembers what was logged lately.
type quiet struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

// due tells whether a line with this key may be logged now.
func (q *quiet) due(key string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, ok := q.seen[key]; ok && now.Sub(at) < often {
		return false
	}
	if q.seen == nil || len(q.seen) >= maxRepeats { // forget all: rather a line too many
		q.seen = map[string]time.Time{}
	}
	q.seen[key] = now
	return true
}

// gossipLog takes the lines of memberlist, which writes them to an io.Writer
// with the level in brackets.
type gossipLog struct {
	log   *slog.Logger
	quiet *quiet
}

// Write logs one line. It never fails.
func (g gossipLog) Write(p []byte) (int, error) {
	_, line, ok := bytes.Cut(p, []byte(" ["))
	if !ok {
		line = p
	}
	level, text, _ := strings.Cut(strings.TrimSpace(string(line)), "] ")
	text = strings.TrimPrefix(text, "memberlist: ")
	if strings.HasPrefix(text, "ignoring alive message for") || strings.HasPrefix(text, "Got ping for unexpected node") {
		return len(p), nil // we have said why ourselves; a server that came back at its old address
	}
	// What worries memberlist is mostly a member that is just being lost.
	to := slog.LevelDebug
	switch level {
	case "ERR":
		to = slog.LevelWarn
	case "WARN":
		to = slog.LevelInfo
	}
	if g.quiet.due(strings.Map(dropDigits, text), time.Now()) { // ports and counters do not make it another line
		g.log.Log(context.Background(), to, "gossip", "text", text)
	}
	return len(p), nil
}

func dropDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}
