package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/proxy/route"
)

// Handler returns the HTTP handler for the requests that a listener receives.
func (p *Proxy) Handler(l Listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{request: request{id: newID(), began: time.Now(), listener: l, in: r, client: p.clientOf(r)}}
		x.out = &response{ResponseWriter: w, stalled: p.Limits.Stall, timed: r.ProtoMajor == 1}
		x.out.clearDeadline()
		if p.Tracer != nil {
			p.startSpan(x)
		}
		p.open.Add(1)
		defer p.end(x) // runs even after a panic that aborts the connection
		p.serve(x)
	})
}

func (p *Proxy) serve(x *exchange) {
	host, err := "", validate(x.in)
	if err == nil {
		host, err = p.find(x)
	}
	if err == nil && x.requested.Port.ForceHTTPS && !x.secure() {
		p.redirect(x, host)
		return
	}
	var want Criteria
	if err == nil {
		want, err = criteriaOf(x.in.Header, x.requested)
	}
	if err != nil {
		p.writeError(x, err)
		return
	}
	x.setTarget(x.requested, want)
	r := x.in.WithContext(context.WithValue(x.in.Context(), exchangeKey{}, x))
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		control := http.NewResponseController(x.out)
		// By default, the server consumes part of the request's body if a reply begins before the whole body has been
		// read.
		_ = control.EnableFullDuplex()
		x.body = &body{store: p.newBodyStore(), from: r.Body, control: control, stalled: p.Limits.Stall, timed: r.ProtoMajor == 1 || r.ContentLength > 0}
		r.Body = x.body.reader()
		defer x.body.end()
	}
	p.reverse.ServeHTTP(x.out, r)
}

// find determines the target of the request, and returns the request's host name.
func (p *Proxy) find(x *exchange) (host string, err error) {
	if x.in.Method == http.MethodConnect {
		return "", &statusError{status: http.StatusMethodNotAllowed, text: "this proxy does not support CONNECT"}
	}
	if host, err = hostOf(x.in); err != nil {
		return "", err
	}
	if x.requested, err = p.lookUp(x.in.Context(), host, x.listener.Port); err != nil {
		return "", err
	}
	p.Metrics.RequestStarted(x.app())
	return host, nil
}

// end counts and logs a request that has been answered or aborted.
func (p *Proxy) end(x *exchange) {
	p.open.Add(-1)
	if x.reply != nil {
		_ = x.reply.Close() // necessary because a failed protocol upgrade does not close the body
	}
	took := time.Since(x.began)
	if x.requested != nil {
		p.Metrics.RequestEnded(x.app(), x.code(), took)
	}
	if x.span.On() {
		x.endSpan()
	}
	p.logAccess(x, took)
}

// redirect redirects the client to the same URL with scheme https.
func (p *Proxy) redirect(x *exchange, host string) {
	if port := x.listener.HTTPSPort; port != 0 && port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(port))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	x.out.Header().Set("Location", "https://"+host+x.in.URL.RequestURI())
	p.addProxyHeaders(&x.request, x.requested, x.out.Header())
	x.out.WriteHeader(http.StatusMovedPermanently)
}

// maxUnknown is the maximum number of requests that may wait for an unknown host name to appear.
const maxUnknown = 1024

// lookUp returns the target of a host name and port. If the name is unknown, it waits briefly for the name to appear,
// because the app's machine may have been created so recently that it is not in this proxy's view yet.
func (p *Proxy) lookUp(ctx context.Context, host string, port int) (*route.Target, error) {
	changed := p.Routes.Changed()
	t, err := p.Routes.Find(host, port)
	if err == nil {
		return t, nil
	}
	defer p.unknownLookups.Add(-1)
	if p.unknownLookups.Add(1) > maxUnknown {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Lookup)
	defer cancel()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
		changed = p.Routes.Changed()
		if t, err = p.Routes.Find(host, port); err == nil {
			return t, nil
		}
	}
}

// NewServer returns an HTTP server with limits that are suitable for untrusted clients. It
// supports HTTP/1.1, and HTTP/2 with and without TLS. The total duration of a request or reply is
// not limited: a body may take any amount of time as long as bytes flow.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     time.Minute,
		},
		// Log only at level debug, because clients may send any number of malformed requests.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
