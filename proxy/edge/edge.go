// Package edge implements a proxy's listeners for untrusted clients. It limits clients' connections, reads PROXY
// protocol headers from load balancers, terminates TLS with the certificate for each host name, and forwards TCP
// streams that are not HTTP.
//
// Requests that arrive at these listeners do not pass through package admission. They always go to machines,
// regardless of the host name.
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

// Routes looks up the targets of host names, ports and apps.
type Routes interface {
	// Find returns the target of a host name and port. Errors: not_found.
	Find(host string, port int) (*route.Target, error)
	// App returns the targets of an app.
	App(name bourse.AppName) []*route.Target
}

// Web is an HTTP listener.
type Web struct {
	net.Listener
	Server *http.Server // its Handler must be set; cannot be shared with other listeners
	Port   int          // port of the services that clients reach through this listener
	TLS    bool
}

// Config configures an Edge.
type Config struct {
	Web          []Web
	Streams      []Stream
	Routes       Routes
	Certificates *Certificates   // used by listeners with TLS
	Balance      proxy.Balance   // used by streams
	Upstreams    proxy.Upstreams // used by streams
	// HoldOpen makes an open stream count as a request in progress. If HoldOpen is not set, the machine counts as
	// used only while bytes flow.
	HoldOpen      bool
	LoadBalancers []netip.Prefix // sources of connections that must begin with a PROXY header
	Limits        Limits
	Clients       *throttle.FairBudget // limits the connections of all listeners together, sharing them fairly among sources; nil: only Limits apply
	Conns         *throttle.FairBudget // limits the connections of streams to machines, sharing them fairly among organizations; nil: unlimited
	Log           *slog.Logger
}

// Limits limits the resources that clients may use. Zero fields mean the defaults.
type Limits struct {
	Connections int           // maximum number of open connections of each listener; default 32,768
	PerSource   int           // maximum number of open connections of each IPv4 address or IPv6 /64; default an eighth of Connections
	Handshake   time.Duration // time limit for a PROXY header, for the handshake of a stream, and for a refused client to disconnect; default 10 s
	Drain       time.Duration // time limit for connections in progress to end when the proxy stops; default 20 s
	Idle        time.Duration // time after which a stream is closed if no bytes flow in either direction; default 0: never
	Attempts    int           // maximum number of attempts to reach a machine for one stream; default 5
	Ready       time.Duration // time limit for starting a stream's machine and connecting to it; default 1 min
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

// Edge serves the listeners of a proxy.
type Edge struct{ Config }

// New returns an Edge. It does not start any goroutines.
func New(c Config) *Edge {
	c.Limits.fill()
	return &Edge{c}
}

var errStopping = errors.New("the proxy is shutting down")

// Run serves until ctx is done. Then it closes the listeners, waits up to Limits.Drain for connections in progress to
// end, and aborts the rest.
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

// limit wraps a listener. The returned listener limits connections and reads PROXY headers.
func (e *Edge) limit(l net.Listener) net.Listener {
	return e.acceptProxyHeaders(&limitedListener{Listener: l, limits: e.Limits, clients: e.Clients, exempt: e.LoadBalancers, log: e.Log, sources: map[netip.Prefix]int{}})
}

// serveWeb serves HTTP on one listener.
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
		e.Log.Warn("requests in progress aborted", slog.String("listener", w.Addr().String()))
		cut(errStopping)
		err = w.Server.Close()
	}
	<-ended // wait until Serve has returned http.ErrServerClosed
	return err
}

// requestTracker counts requests in progress, including upgraded connections, for which http.Server.Shutdown does not
// wait.
type requestTracker struct {
	handler http.Handler

	mu      sync.Mutex
	n       int
	waiting chan struct{} // closed when n drops to 0; nil: nobody is waiting
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

// wait waits until no request is in progress. It returns false if ctx is done first.
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
