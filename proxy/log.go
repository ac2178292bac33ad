package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/internal/trace"
)

// logAccess writes a request's entry in the access log. The entry shows where the request went and how long each part
// took. To avoid revealing the request's contents, it does not include the query, or any header except Host.
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
	if x.replay.replays > 0 {
		list = append(list, slog.Int("replays", x.replay.replays))
	}
	if x.err != nil {
		list = append(list, slog.Any("err", x.err))
	}
	p.Log.LogAttrs(ctx, slog.LevelInfo, "request", list...)
}

// maxLogged is the maximum length, in bytes, of client-provided strings in the log. Longer strings are truncated.
const maxLogged = 256

func short(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + "…"
}

// bytes returns the number of body bytes received from and sent to the client.
func (x *exchange) bytes() (in, out int64) {
	out = x.out.written
	if x.body != nil {
		in = x.body.read.Load()
	}
	if s := x.upgraded; s != nil {
		in, out = in+s.in.Load(), out+s.out.Load()
	}
	return in, out
}

// startSpan starts a request's span. If the client sent a trace context, the span becomes part of that trace.
func (p *Proxy) startSpan(x *exchange) {
	ctx, span := p.Tracer.Request(x.in.Context(), x.in.Header, "request")
	x.in, x.span = x.in.WithContext(ctx), span
}

// endSpan ends a request's span. The attribute names follow OpenTelemetry's conventions.
func (x *exchange) endSpan() {
	s := x.span
	s.Set("http.request.method", x.in.Method)
	s.Set("url.scheme", x.client.proto)
	s.Set("url.path", x.in.URL.Path)
	s.Set("server.address", x.in.Host)
	s.SetInt("http.response.status_code", x.code())
	s.Set("bourse.request", x.id)
	s.Set("bourse.app", x.app())
	s.Set("bourse.machine", string(x.machine()))
	s.SetInt("bourse.attempts", x.attempts)
	err := x.err
	if code := x.code(); err == nil && code >= http.StatusInternalServerError {
		err = errors.New(strconv.Itoa(code) + " " + http.StatusText(code))
	}
	s.End(err)
}

// propagateTrace adds the current trace context to the headers that are sent to the machine.
func propagateTrace(out *http.Request) {
	out.Header = out.Header.Clone() // a copy, because the previous attempt may still be sending the header
	trace.Into(out.Context(), out.Header)
}
