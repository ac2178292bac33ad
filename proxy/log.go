package proxy

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// logAccess writes a request's line: enough to find out where it went and what took
// its time, and nothing of what it said: no query, no header but the host.
func (p *Proxy) logAccess(x *exchange, took time.Duration) {
	ctx := context.WithoutCancel(x.in.Context())
	if !p.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	in, out := x.bytes()
	list := make([]slog.Attr, 0, 16)
	list = append(list,
		slog.String("request", x.id), slog.String("app", x.app()), slog.String("machine", string(x.machine())),
		slog.String("method", x.in.Method), slog.String("host", short(x.in.Host)), slog.String("path", short(x.in.URL.Path)),
		slog.Int("status", x.code()), slog.Int64("read", in), slog.Int64("written", out),
		slog.Duration("took", took), slog.Duration("waited", x.waited), slog.Duration("ready", x.used),
		slog.Int("attempts", x.attempts), slog.String("client", x.client.addr),
	)
	if x.onward.replays > 0 {
		list = append(list, slog.Int("replays", x.onward.replays))
	}
	if x.failed != nil {
		list = append(list, slog.Any("err", x.failed))
	}
	p.Log.LogAttrs(ctx, slog.LevelInfo, "request", list...)
}

// maxLogged is how much of a text of the client's is logged, in bytes.
const maxLogged = 256

func short(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + "…"
}

// bytes returns how much of bodies went in and out.
func (x *exchange) bytes() (in, out int64) {
	out = x.out.written
	if x.body != nil {
		in = x.body.read.Load()
	}
	if s := x.switched; s != nil {
		in, out = in+s.in.Load(), out+s.out.Load()
	}
	return in, out
}
