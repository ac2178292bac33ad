// Package proxy implements the HTTP proxy that serves apps' users. For each request, it looks up the machines behind
// the host name and port, chooses one of them, starts that machine if it is stopped, and forwards the request and its
// reply.
//
// If an attempt fails before any byte of the request has been sent, the proxy tries another machine. If a machine may
// already have acted on the request, the request is retried only if it is idempotent and the client has not received
// any part of a reply (ADR 63). If a request cannot be served, the reply contains a one-sentence error and the
// request's ID.
//
// The proxy stores nothing. Routing, load balancing and connections to machines are provided by
// [Routes], [Balance] and [Upstreams]. Every goroutine belongs to a request and ends when the
// request does.
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

// Balance chooses a machine for each request, and counts the requests in progress on each machine.
type Balance interface {
	// Acquire reserves a slot on a machine of the target for one request. While all machines are at
	// their hard limits, it waits in a bounded queue. Errors: unavailable if no machine can be used
	// or the queue is full; timeout if the context's deadline passes.
	Acquire(ctx context.Context, t *route.Target, w Criteria) (Slot, error)
}

// Criteria restricts and orders the machines that a request may use.
type Criteria = balance.Criteria

// Slot represents one request on a machine, and counts toward the machine's limits. Done must be called exactly once.
type Slot interface {
	Backend() route.Backend
	// Done releases the slot. If the machine has failed, failed is the reason, and other machines
	// are temporarily preferred. A canceled error does not count as a failure of the machine.
	Done(failed error)
}

// Upstreams provides connections to machines.
type Upstreams interface {
	// Use prepares a machine to receive requests on a port. Port 0 is the machine's $PORT. Use returns once the
	// machine accepts connections. If start is set, it starts the machine if necessary. Concurrent calls for the same
	// machine share one request to the machine's worker. Use may return errors with any code; insufficient_capacity
	// means that the machine's host is full.
	Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (Upstream, error)
}

// Upstream provides connections to a machine until the machine stops or restarts. Several requests share it.
type Upstream interface {
	// Begin counts a request as in progress until end is called.
	Begin() (end func())
	// Dial connects to the machine. If it fails although ctx is not done, the caller should call Use again to
	// determine the machine's current state.
	Dial(ctx context.Context) (net.Conn, error)
	// Done returns a channel that is closed when the upstream can no longer be used.
	Done() <-chan struct{}
}

// Replays contains the dependencies for replaying requests (fly-replay).
type Replays struct {
	Apps   replay.Apps    // targets of all apps
	Spools *replay.Spools // stores request bodies, so that they can be sent again; nil: only bodies of up to 64 KiB are stored
}

// Metrics records events. All methods are safe for concurrent use and must not block.
type Metrics interface {
	RequestStarted(app string)
	RequestEnded(app string, status int, took time.Duration)
	Repeated(app, why string) // counts an attempt after the first one; why is "dial", "use", "lost", "replay" or "order"
	MachineWoken(app string, ok bool, took time.Duration)
}

// Config configures a Proxy. Routes, Balance, Upstreams and Log are required.
type Config struct {
	Routes    Routes
	Balance   Balance
	Upstreams Upstreams
	// Orders is used to order a machine on another host if none of the app's machines can be started for a request
	// because their hosts are full. If Orders is nil, such requests fail.
	Orders  Orders
	Replays *Replays       // handles replies that request a replay; nil: such replies are forwarded unchanged
	Metrics Metrics        // nil: no metrics
	Tracer  *trace.Tracer  // nil: no traces
	Region  bourse.Region  // the proxy's region
	Trusted []netip.Prefix // addresses from which X-Forwarded-For and X-Forwarded-Proto are trusted
	Limits  Limits
	Conns   *throttle.FairBudget // limits connections to machines, sharing them fairly among organizations; nil: unlimited
	Log     *slog.Logger

	// HoldUpgraded makes an upgraded connection (such as a WebSocket) count as a request in progress for as long as
	// it is open. If HoldUpgraded is not set, the machine counts as used only while bytes flow, and may be stopped
	// despite the open connection.
	HoldUpgraded bool
}

// Limits limits the time and resources that requests may use. Zero fields mean the defaults.
type Limits struct {
	Lookup         time.Duration // how long to wait until an unknown host name or port appears in the view; default 300 ms; negative: do not wait
	MaxAttempts    int           // maximum number of attempts to reach a machine for one request; default 5
	MaxWaiting     int           // maximum number of requests that wait for machines of one target to become ready; default 10,000
	Queue          time.Duration // how long to wait for a slot while all machines are at their hard limits; default 30 s
	Ready          time.Duration // time limit for a machine to start and accept connections; default 1 min
	WorkerOutage   time.Duration // how long a request waits for each unresponsive worker; default 5 s
	Dial           time.Duration // time limit for connecting to a ready machine; default 2 s
	ResponseHeader time.Duration // time limit for receiving the header of a reply once the request is sent; default 1 min; a port's idle timeout overrides it
	Idle           time.Duration // time after which an upgraded connection (WebSocket) is closed if no bytes flow in either direction; default 0: never
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
	unknownLookups atomic.Int64 // number of requests that wait for an unknown host name to appear
}

// New returns a proxy. It does not start any goroutines.
func New(c Config) *Proxy {
	c.Limits.fill()
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	p := &Proxy{Config: c, cache: replay.NewCache()}
	p.waitLimit.max = c.Limits.MaxWaiting
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
	Port      int  // port to which clients connect
	TLS       bool // clients' connections to this proxy are encrypted
	HTTPSPort int  // port to which force_https redirects clients; 0: 443
}

// newID returns an ID for a new request.
func newID() string { return ulid.Make().String() }

type noMetrics struct{}

func (noMetrics) RequestStarted(string)                    {}
func (noMetrics) RequestEnded(string, int, time.Duration)  {}
func (noMetrics) Repeated(_, _ string)                     {}
func (noMetrics) MachineWoken(string, bool, time.Duration) {}
