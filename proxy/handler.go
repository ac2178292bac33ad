package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/route"
)

// exchange is one request and its reply: what is known of it at any moment. It
// belongs to the request's goroutine.
type exchange struct {
	id       string
	began    time.Time
	listener Listener
	in       *http.Request
	out      *response
	client   client
	target   *route.Target
	want     Want

	backend   route.Backend // that was tried last
	attempts  int
	awaited   int              // of the attempts: they found that the machine's worker is away
	waited    time.Duration    // for a place at a machine
	used      time.Duration    // for it to be ready
	body      *body            // of the request; nil: none
	onward    onward           // on, as machines ask
	ordered   bool             // another machine was ordered for it
	missed    bourse.MachineID // that was preferred and not chosen
	switched  *switched        // both ways, after a change of protocols
	readyBy   time.Time        // when machines must be ready
	last      error            // of the attempt before this one
	lastStage stage
	pause     time.Duration // before a machine was asked again
	sent      bool          // the latest attempt may have reached its machine
	lastTry   stage         // how far the latest attempt came
	reply     io.Closer     // of a machine that has replied: ends the attempt
	failed    error         // why there was no reply
	span      trace.Span    // of the request
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// app returns the name of the app that is asked, for logs and counts.
func (x *exchange) app() string {
	if x.target == nil {
		return ""
	}
	if x.onward.home != nil {
		return string(x.onward.home.App.Name)
	}
	return string(x.target.App.Name)
}

// tries returns how often machines were asked for where the request goes now: without what only waited for
// a worker, which has its own bound.
func (x *exchange) tries() int { return x.attempts - x.onward.before - x.awaited }

// Handler returns the handler of a listener.
func (p *Proxy) Handler(l Listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{id: newID(), began: time.Now(), listener: l, in: r, client: p.clientOf(r)}
		x.out = &response{ResponseWriter: w, exchange: x, stalled: p.Limits.Stalled, timed: r.ProtoMajor == 1}
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
	if err == nil && x.target.Port.ForceHTTPS && !x.secure() {
		p.redirect(x, host)
		return
	}
	if err == nil {
		x.want, err = wantOf(x.in.Header, x.target)
	}
	if err != nil {
		p.refuse(x, err)
		return
	}
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
	if x.target, err = p.lookUp(x.in.Context(), host, x.listener.Port); err != nil {
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
	if x.target != nil {
		p.Metrics.Ended(x.app(), x.out.code(), took)
	}
	if x.span.On() {
		x.traced()
	}
	p.logAccess(x, took)
}

// secure reports whether the client's connection is encrypted, as far as we know.
func (x *exchange) secure() bool { return x.client.proto == "https" }

// redirect sends the client to the same address with https.
func (p *Proxy) redirect(x *exchange, host string) {
	if port := x.listener.HTTPSPort; port != 0 && port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(port))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	x.out.Header().Set("Location", "https://"+host+x.in.URL.RequestURI())
	p.own(x, x.out.Header())
	x.out.WriteHeader(http.StatusMovedPermanently)
}

// gone reports whether the client left.
func (x *exchange) gone() bool { return errors.Is(x.in.Context().Err(), context.Canceled) }
