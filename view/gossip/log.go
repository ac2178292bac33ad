package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/bourse-dev/bourse/internal/quiet"
)

// gossipLog is the io.Writer to which memberlist writes its log. It converts each line, which
// contains the level in brackets, to a record.
type gossipLog struct {
	log   *slog.Logger
	quiet *quiet.Lines
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
		return len(p), nil // already logged by this package, or caused by a server that has restarted at its old address
	}
	// Lower the level of memberlist's records, because most of its warnings concern members that
	// will soon be reported lost.
	to := slog.LevelDebug
	switch level {
	case "ERR":
		to = slog.LevelWarn
	case "WARN":
		to = slog.LevelInfo
	}
	if g.quiet.Due(strings.Map(dropDigits, text)) { // messages that differ only in digits, such as ports and counters, count as the same message
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
