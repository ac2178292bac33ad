// Package edge is where strangers come in: the listeners of a proxy. It bounds their
// connections, believes those that may say for whom they come (the PROXY protocol),
// speaks TLS with the certificates of host names, and passes on what is not HTTP.
//
// Nothing here is behind the gate of package admission: what comes in is for
// machines, whatever name it calls us by.
package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Routes knows what a host name and a port stand for, and what an app serves.
type Routes interface {
	// Find returns what a host name and a port stand for. Codes: not_found.
	Find(host string, port int) (*route.Target, error)
	// App returns what an app serves.
	App(name bourse.AppName) []*route.Target
}

// Web is a listener for HTTP.
type Web struct {
	net.Listener
	Server *http.Server // with its handler; of this listener alone
	Port   int          // of services, that it stands for
	TLS    bool
}

// Config is what listeners are made of.
type Config struct {
	Web           []Web
	Streams       []Stream
	Routes        Routes
	Certificates  *Certificates   // for those with TLS
	Balance       proxy.Balance   // of streams
	Upstreams     proxy.Upstreams // to their machines
	HoldOpen      bool            // a stream counts as a request in progress for as long as it is open
	LoadBalancers []netip.Prefix  // that begin connections with a PROXY header
	Limits        Limits
	Clients       *throttle.Fair // connections of all listeners, shared by the addresses they come from; nil: only Limits
	Conns         *throttle.Fair // connections of streams to machines, shared by organizations; nil: no limit
	Log           *slog.Logger
}

// Limits bound what strangers may take. Zero fields have the defaults.
type Limits struct {
	Connections int           // of one listener; default 32 768
	PerSource   int           // of one address, or of one /64 of IPv6; default an eighth of Connections
	Handshake   time.Duration // for a PROXY header, for a handshake of a stream, and for who is refused to leave; default 10 s
	Drain       time.Duration // for what is in progress when the proxy ends; default 20 s
	Idle        time.Duration // of a stream without bytes either way; default 0: none
	Attempts    int           // at machines, for one stream; default 5
	Ready       time.Duration // for a stream's machine to be started and reached; default 1 min
}

func (l *Limits) fill() {
	if l.Connections <= 0 {
		l.Connections = 1 << 15
	}
	if l.PerSource <= 0 {
		l.PerSource = max(1, l.Connections/8)
	}
	if l.Handshake <= 0 {
		l.Handshake = 10 * time.Second
	}
	if l.Drain <= 0 {
		l.Drain = 20 * time.Second
	}
	if l.Attempts <= 0 {
		l.Attempts = 5
	}
	if l.Ready <= 0 {
		l.Ready = time.Minute
	}
}

// Edge serves listeners.
type Edge struct{ Config }

// New returns what serves the listeners of a config. It starts nothing.
func New(c Config) *Edge {
	c.Limits.fill()
	return &Edge{c}
}

var errStopping = errors.New("the proxy is ending")

// Run serves until ctx ends. Then it takes nothing more, lets what is in progress
// end for a while, and breaks off the rest. It closes the listeners.
func (e *Edge) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range e.Web {
		group.Go(func() error { return e.serveWeb(ctx, &e.Web[i]) })
	}
	for i := range e.Streams {
		group.Go(func() error {
			e.serveStreams(ctx, &e.Streams[i])
			return nil
		})
	}
	if e.Certificates != nil && e.Certificates.ACME != nil {
		group.Go(func() error { return e.Certificates.ACME.Run(ctx) })
	}
	group.Go(func() error {
		<-ctx.Done()
		return nil
	})
	return group.Wait()
}

// bounded returns the listener with its bounds, and with the addresses of those for
// whom others come.
func (e *Edge) limit(l net.Listener) net.Listener {
	return e.acceptProxyHeaders(&limitedListener{Listener: l, limits: e.Limits, clients: e.Clients, exempt: e.LoadBalancers, log: e.Log, sources: map[netip.Prefix]int{}})
}

// serveWeb serves HTTP.
func (e *Edge) serveWeb(ctx context.Context, w *Web) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopping)
	progress := &requestTracker{handler: w.Server.Handler}
	w.Server.Handler = progress
	w.Server.BaseContext = func(net.Listener) context.Context { return base }
	l, ended := e.limit(w.Listener), make(chan error, 1)
	go func() {
		if !w.TLS {
			ended <- w.Server.Serve(l)
			return
		}
		w.Server.TLSConfig = e.tlsOf(w.Port)
		ended <- w.Server.ServeTLS(l, "", "")
	}()
	select {
	case err := <-ended:
		return errors.Join(err, w.Server.Close())
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(base, e.Limits.Drain)
	defer cancel()
	err := w.Server.Shutdown(last)
	if !progress.wait(last) || errors.Is(err, context.DeadlineExceeded) {
		e.Log.Warn("requests in progress are broken off", slog.String("listener", w.Addr().String()))
		cut(errStopping)
		err = w.Server.Close()
	}
	<-ended // http.ErrServerClosed
	return err
}

// inProgress counts requests, also those whose connection has changed protocols:
// http.Server.Shutdown does not wait for these.
type requestTracker struct {
	handler http.Handler

	mu      sync.Mutex
	n       int
	waiting chan struct{} // closed when n is 0; nil: no one waits
}

// ServeHTTP implements http.Handler.
func (p *requestTracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.add(1)
	defer p.add(-1)
	p.handler.ServeHTTP(w, r)
}

func (p *requestTracker) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n += n; p.n == 0 && p.waiting != nil {
		close(p.waiting)
		p.waiting = nil
	}
}

// wait waits until no request is in progress, and reports whether that came.
func (p *requestTracker) wait(ctx context.Context) bool {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return true
	}
	done := make(chan struct{})
	p.waiting = done
	p.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
