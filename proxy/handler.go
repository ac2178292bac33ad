package proxy

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Handler returns the handler of a listener.
func (p *Proxy) Handler(l Listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{request: request{id: newID(), began: time.Now(), listener: l, in: r, client: p.clientOf(r)}}
		x.out = &response{ResponseWriter: w, stalled: p.Limits.Stalled, timed: r.ProtoMajor == 1}
		x.out.begin()
		if p.Tracer != nil {
			p.trace(x)
		}
		p.open.Add(1)
		defer p.end(x) // a panic that breaks the connection off passes through it
		p.serve(x)
	})
}

func (p *Proxy) serve(x *exchange) {
	host, err := "", validate(x.in)
	if err == nil {
		host, err = p.find(x)
	}
	if err == nil && x.home.Port.ForceHTTPS && !x.secure() {
		p.redirect(x, host)
		return
	}
	var want Want
	if err == nil {
		want, err = wantOf(x.in.Header, x.home)
	}
	if err != nil {
		p.refuse(x, err)
		return
	}
	x.begin(x.home, want)
	r := x.in.WithContext(context.WithValue(x.in.Context(), exchangeKey{}, x))
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		control := http.NewResponseController(x.out)
		_ = control.EnableFullDuplex() // else a reply that begins early would swallow part of the body
		x.body = &body{kept: p.keeper(), from: r.Body, control: control, stalled: p.Limits.Stalled, timed: r.ProtoMajor == 1 || r.ContentLength > 0}
		r.Body = x.body.reader()
		defer x.body.end()
	}
	p.reverse.ServeHTTP(x.out, r)
}

// find finds out which app the request is for.
func (p *Proxy) find(x *exchange) (host string, err error) {
	if x.in.Method == http.MethodConnect {
		return "", &refusal{status: http.StatusMethodNotAllowed, text: "this is no proxy for CONNECT"}
	}
	if host, err = hostOf(x.in); err != nil {
		return "", err
	}
	if x.home, err = p.lookUp(x.in.Context(), host, x.listener.Port); err != nil {
		return "", err
	}
	p.Metrics.Began(x.app())
	return host, nil
}

// end counts and logs a request that was answered or broken off.
func (p *Proxy) end(x *exchange) {
	p.open.Add(-1)
	if x.reply != nil {
		_ = x.reply.Close() // a change of protocols that failed has not closed it
	}
	took := time.Since(x.began)
	if x.home != nil {
		p.Metrics.Ended(x.app(), x.code(), took)
	}
	if x.span.On() {
		x.traced()
	}
	p.logAccess(x, took)
}

// redirect sends the client to the same address with https.
func (p *Proxy) redirect(x *exchange, host string) {
	if port := x.listener.HTTPSPort; port != 0 && port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(port))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	x.out.Header().Set("Location", "https://"+host+x.in.URL.RequestURI())
	p.own(&x.request, x.home, x.out.Header())
	x.out.WriteHeader(http.StatusMovedPermanently)
}
