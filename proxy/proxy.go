// Package proxy answers the requests of an app's users: it finds the machines that
// a host name and port stand for, chooses one, has it started if it is stopped, and
// passes the request on, with what comes back.
//
// A request that failed before anything of it was sent goes to another machine. One
// that a machine may have acted on is repeated only if its method says that this
// does no harm, and only while its sender has read nothing of a reply (ADR 63).
// What cannot be answered ends in one sentence with the request's id.
//
// The proxy keeps nothing: where to, whom and how are asked of [Routes], [Balance]
// and [Ways]. All goroutines are those of requests; they end with them.
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

// Routes knows what a host name and a port stand for. Codes of Find: not_found.
type Routes interface {
	Find(host string, port int) (*route.Target, error)
	// Changed returns a channel that is closed when Find may know more than it does now.
	Changed() <-chan struct{}
}

// Balance chooses among a target's backends, and counts what each is given.
type Balance interface {
	// Take returns the backend that a request goes to, and counts it there until the
	// turn is done. It waits while all are at their hard limits, in a queue that is
	// bounded. Codes: unavailable (no backend is left, or the queue is full), timeout
	// (it waited until the context's deadline).
	Acquire(ctx context.Context, t *route.Target, w Criteria) (Slot, error)
}

// Want is what a request asks of the choice of its backend.
type Criteria = balance.Criteria

// Turn is a request's place at a backend. It is done exactly once.
type Slot interface {
	Backend() route.Backend
	// Done ends the place. An error says that the backend failed: others are preferred
	// for a while. Canceled says nothing about the backend.
	Done(failed error)
}

// Ways reaches machines.
type Upstreams interface {
	// Use has a machine ready for a request at a port, 0 for its $PORT: started, if it is
	// not and start says so, and accepting connections. However many requests wait for
	// one machine, it is asked for once. Codes: any; insufficient_capacity (its host is
	// full).
	Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (Upstream, error)
}

// Way leads to one start of a machine. Requests share it.
type Upstream interface {
	// Begin counts a request in progress until end is called.
	Begin() (end func())
	// Dial connects to the machine. After an error that is not the context's, another
	// Use finds out what has become of it.
	Dial(ctx context.Context) (net.Conn, error)
	// Done is closed once the way leads nowhere.
	Done() <-chan struct{}
}

// Replays is what the proxy needs to send a request on when a machine asks so.
type Replays struct {
	Apps   replay.Apps    // what is routed now
	Spools *replay.Spools // nil: only requests whose body has up to 64 KiB are sent again
}

// Metrics counts. All methods are safe for concurrent use and return at once.
type Metrics interface {
	Began(app string)
	Ended(app string, status int, took time.Duration)
	Repeated(app, why string) // an attempt after the first, for "dial", "use", "lost" or "replay"
	Woke(app string, ok bool, took time.Duration)
}

// Config is what a proxy is made of. Routes, Balance, Ways and Log are required.
type Config struct {
	Routes    Routes
	Balance   Balance
	Upstreams Upstreams
	Orders    Orders         // nil: when hosts are full, that is the answer
	Replays   *Replays       // nil: a reply that asks for a replay is passed on as it is
	Metrics   Metrics        // nil: nothing is counted
	Tracer    *trace.Tracer  // nil: nothing is traced
	Region    bourse.Region  // of this proxy
	Trusted   []netip.Prefix // addresses whose X-Forwarded-For and X-Forwarded-Proto are believed
	Limits    Limits
	Conns     *throttle.Fair // connections to machines, shared by organizations; nil: as many as there are
	Log       *slog.Logger

	// HoldSwitched has a connection that changed protocols (WebSocket) count as a request
	// in progress for as long as it is open. Otherwise its machine counts as used only
	// while bytes flow, and may be stopped under it.
	HoldUpgraded bool
}

// Limits bound what a request may take. Zero fields have the defaults.
type Limits struct {
	Lookup         time.Duration // for a host name or port that is not known yet; default 300 ms; negative: none
	MaxAttempts    int           // at machines, for one request; default 5
	MaxWaiting     int           // requests that wait for machines of one target to be ready; default 10 000
	Queue          time.Duration // for a place at a machine while all are at their hard limits; default 30 s
	Ready          time.Duration // for a machine to be started and accept connections; default 1 min
	WorkerOutage   time.Duration // from a request's begin, for a worker that does not answer to be back, when no other has a machine; default 5 s
	Dial           time.Duration // for a connection to a machine that is ready; default 2 s
	ResponseHeader time.Duration // for the head of a reply once the request was sent; default 1 min; a port's idle timeout comes before it
	Idle           time.Duration // of a connection that changed protocols (WebSocket), without bytes either way; default 0: none
	Stall          time.Duration // of a client that sends or reads nothing of a body; default 1 min
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

// Proxy answers requests. It is safe for concurrent use.
type Proxy struct {
	Config
	reverse        httputil.ReverseProxy
	transports     transportPool
	waitLimit      waitLimit
	cache          *replay.Cache
	orders         orders
	open           atomic.Int64
	unknownLookups atomic.Int64 // requests for what is not known
}

// New makes a proxy. It starts nothing.
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

// Open returns how many requests are in progress.
func (p *Proxy) Open() int { return int(p.open.Load()) }

// Close closes the connections to machines that no request uses. Requests in
// progress go on.
func (p *Proxy) Close() { p.transports.close() }

// Listener is where a request came in.
type Listener struct {
	Port      int  // as clients see it
	TLS       bool // the connection was encrypted up to this proxy
	HTTPSPort int  // where force_https sends those that were not; 0: 443
}

// newID returns the id of a request.
func newID() string { return ulid.Make().String() }

type noMetrics struct{}

func (noMetrics) Began(string)                     {}
func (noMetrics) Ended(string, int, time.Duration) {}
func (noMetrics) Repeated(_, _ string)             {}
func (noMetrics) Woke(string, bool, time.Duration) {}
