package proxy

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/bourse-dev/bourse/internal/trace"
)

// trace begins the span of a request, in the trace of its client if that has one.
func (p *Proxy) trace(x *exchange) {
	ctx, span := p.Tracer.Request(x.in.Context(), x.in.Header, "request")
	x.in, x.span = x.in.WithContext(ctx), span
}

// traced ends the span of a request. Names are those of OpenTelemetry's conventions.
func (x *exchange) traced() {
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
	err := x.failed
	if code := x.code(); err == nil && code >= http.StatusInternalServerError {
		err = errors.New(strconv.Itoa(code) + " " + http.StatusText(code))
	}
	s.End(err)
}

// passOn has the machine know the span that sends a request to it.
func passOn(out *http.Request) {
	out.Header = out.Header.Clone() // the attempt before may still be sending it
	trace.Into(out.Context(), out.Header)
}
