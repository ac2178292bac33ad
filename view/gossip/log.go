package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/bourse-dev/bourse/internal/quiet"
)

// gossipLog is the io.Writer for memberlist's log. It converts the lines, which contain the level
// in brackets, to records.
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
	// memberlist's warnings are mostly about members that are about to be lost.
	to := slog.LevelDebug
	switch level {
	case "ERR":
		to = slog.LevelWarn
	case "WARN":
		to = slog.LevelInfo
	}
	if g.quiet.Due(strings.Map(dropDigits, text)) { // messages that differ only in ports and counters count as the same
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
