// Package proxy implements the HTTP proxy that serves the users of apps. For each request
// it looks up the machines behind a host name and port, chooses one of them, starts that
// machine if it is stopped, and forwards the request and its reply.
//
// If an attempt fails before any byte of the request was sent, the proxy tries another
// machine. A request that a machine may already have acted on is repeated only if its
// method is idempotent and the client has not read any part of a reply (ADR 63). A request
// that cannot be served is answered with a one-sentence error and the request's id.
//
// The proxy stores nothing. Routing, load balancing and connections to machines are
// provided by [Routes], [Balance] and [Upstreams]. Every goroutine belongs to a request and
// ends with it.
package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http/httputil"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Routes looks up the target of a host name and port.
type Routes interface {
	// Find returns the target of a host name and port. Errors: not_found.
	Find(host string, port int) (*route.Target, error)
	// Changed returns a channel that is closed when the result of Find may have changed.
	Changed() <-chan struct{}
}

// Balance chooses a target's backend for each request and counts the requests in progress
// on each backend.
type Balance interface {
	// Acquire reserves a slot on a backend for one request. While all backends are at their
	// hard limits, it waits in a bounded queue. Errors: unavailable if no backend can be
	// used or the queue is full; timeout if the context's deadline passes.
	Acquire(ctx context.Context, t *route.Target, w Criteria) (Slot, error)
}

// Criteria restricts and orders the backends that a request may use.
type Criteria = balance.Criteria

// Slot is a request's reservation on a backend. Done must be called exactly once.
type Slot interface {
	Backend() route.Backend
	// Done releases the slot. A non-nil error reports that the backend failed, so that
	// other backends are temporarily preferred; a canceled error does not count against the
	// backend.
	Done(failed error)
}

// Upstreams provides connections to machines.
type Upstreams interface {
	// Use prepares a machine to receive requests on a port, where 0 is the machine's $PORT.
	// It returns when the machine accepts connections. It starts the machine if necessary
	// and start is set. Concurrent calls for one machine share one request to its worker.
	// It may return any error code; insufficient_capacity means that the machine's host is
	// full.
	Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (Upstream, error)
}

// Upstream connects to one run of a machine. Requests share it.
type Upstream interface {
	// Begin counts a request as in progress until end is called.
	Begin() (end func())
	// Dial connects to the machine. If it fails for a reason other than ctx, call Use again
	// to learn the machine's current state.
	Dial(ctx context.Context) (net.Conn, error)
	// Done returns a channel that is closed when the upstream can no longer be used.
	Done() <-chan struct{}
}

// Replays contains the dependencies of request replays (fly-replay).
type Replays struct {
	Apps   replay.Apps    // targets of all apps
	Spools *replay.Spools // stores request bodies for replays; nil: only bodies of up to 64 KiB can be sent again
}

// Metrics records events. All methods are safe for concurrent use and must not block.
type Metrics interface {
	RequestStarted(app string)
	RequestEnded(app string, status int, took time.Duration)
	Repeated(app, why string) // an attempt after the first; why is "dial", "use", "lost" or "replay"
	MachineWoken(app string, ok bool, took time.Duration)
}

// Config configures a Proxy. Routes, Balance, Upstreams and Log are required.
type Config struct {
	Routes    Routes
	Balance   Balance
	Upstreams Upstreams
	Orders    Orders         // orders a machine on another host when a machine's own host is full; nil: such requests fail
	Replays   *Replays       // nil: replies that request a replay are forwarded unchanged
	Metrics   Metrics        // nil: disabled
	Tracer    *trace.Tracer  // nil: disabled
	Region    bourse.Region  // the proxy's region
	Trusted   []netip.Prefix // addresses whose X-Forwarded-For and X-Forwarded-Proto headers are trusted
	Limits    Limits
	Conns     *throttle.Fair // limits connections to machines, with a fair share for each organization; nil: unlimited
	Log       *slog.Logger

	// HoldUpgraded counts an upgraded connection (WebSocket) as a request in progress for
	// as long as it is open. Otherwise its machine counts as used only while bytes flow,
	// and may be stopped while the connection is open.
	HoldUpgraded bool
}

// Limits bounds the time and resources that requests may use. Zero fields select the defaults.
type Limits struct {
	Lookup         time.Duration // wait for an unknown host name or port to appear in the view; default 300 ms; negative: no wait
	MaxAttempts    int           // attempts to reach a machine for one request; default 5
	MaxWaiting     int           // requests waiting for machines of one target to become ready; default 10,000
	Queue          time.Duration // wait for a slot while all machines are at their hard limits; default 30 s
	Ready          time.Duration // time for a machine to start and accept connections; default 1 min
	WorkerOutage   time.Duration // time since the start of a request during which an unavailable worker is retried if no other worker has a machine of the app; default 5 s
	Dial           time.Duration // time to connect to a ready machine; default 2 s
	ResponseHeader time.Duration // time from sending the request to the head of the reply; default 1 min; a port's idle timeout overrides it
	Idle           time.Duration // time that an upgraded connection (WebSocket) may be silent in both directions; default 0: unlimited
	Stall          time.Duration // time that a client may take to send or read the next part of a body; default 1 min
}

func (l *Limits) fill() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	if l.MaxAttempts == 0 {
		l.MaxAttempts = 5
	}
	if l.MaxWaiting == 0 {
		l.MaxWaiting = 10_000
	}
	set(&l.Lookup, 300*time.Millisecond)
	set(&l.Queue, 30*time.Second)
	set(&l.Ready, time.Minute)
	set(&l.WorkerOutage, 5*time.Second)
	set(&l.Dial, 2*time.Second)
	set(&l.ResponseHeader, time.Minute)
	set(&l.Stall, time.Minute)
}

// Proxy forwards requests to machines. It is safe for concurrent use.
type Proxy struct {
	Config
	reverse        httputil.ReverseProxy
	transports     transportPool
	waitLimit      waitLimit
	cache          *replay.Cache
	orders         orders
	open           atomic.Int64
	unknownLookups atomic.Int64 // requests waiting for an unknown host name to appear
}

// New returns a proxy. It starts nothing.
func New(c Config) *Proxy {
	c.Limits.fill()
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	p := &Proxy{Config: c, cache: replay.NewCache()}
	p.waitLimit.most = c.Limits.MaxWaiting
	p.transports.limits, p.transports.conns = c.Limits, c.Conns
	p.reverse = httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: retryTransport{p}, ModifyResponse: p.modifyResponse, ErrorHandler: p.handleError,
		BufferPool: &buffers{}, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// Open returns the number of requests in progress.
func (p *Proxy) Open() int { return int(p.open.Load()) }

// Close closes idle connections to machines. Requests in progress continue.
func (p *Proxy) Close() { p.transports.close() }

// Listener describes the listener that received a request.
type Listener struct {
	Port      int  // port that clients connect to
	TLS       bool // connections are encrypted up to this proxy
	HTTPSPort int  // port to which force_https redirects; 0: 443
}

// newID returns a new request id.
func newID() string { return ulid.Make().String() }

type noMetrics struct{}

func (noMetrics) RequestStarted(string)                    {}
func (noMetrics) RequestEnded(string, int, time.Duration)  {}
func (noMetrics) Repeated(_, _ string)                     {}
func (noMetrics) MachineWoken(string, bool, time.Duration) {}
