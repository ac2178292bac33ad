// Package upstream connects a proxy to machines. One call to a machine's worker
// (fabric.MachineUse) starts the machine if necessary, waits until it accepts connections,
// and counts it as in use. The resulting [Upstream] is reused until it ends.
//
// An [Upstream] belongs to one run of a machine. Connections go directly to the machine if
// it has an address on this host, and through its worker's tunnel otherwise. While requests
// are in progress or bytes flow, the pool keeps renewing the use at the worker. An upstream
// ends when its machine stops, or when its worker does not answer for as long as the
// machine counts as used.
//
// # Trust
//
// A worker may lie. A direct address from a worker is used only if it is on 127.0.0.1 and
// the worker itself answered at one of this host's addresses: such a worker could reach any
// local address itself, so it gains nothing. All other machines are reached through the
// tunnel, which ends at their own worker.
//
// # Goroutines and locks
//
// [Pool.Run] renews uses, and each call in progress has a goroutine. Pool.mu is locked
// before an upstream's own mutex; neither is held across I/O.
package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const (
	// defaultTTL is the time for which a machine counts as used after a call. The counts of
	// other proxies' requests are at most a third of it old.
	defaultTTL = 15 * time.Second
	// defaultWait is the time that a machine may take to start and accept connections.
	defaultWait = 30 * time.Second
	// renewals is the number of renewals per TTL, so that two lost answers do not end an
	// upstream.
	renewals = 3
	// callMargin is added to the wait time of a call for the network round trip.
	callMargin = 5 * time.Second
	// idleTimeout is the time for which an unused upstream is kept.
	idleTimeout = 5 * time.Minute
)

// Directory finds workers.
type Directory interface {
	// ByTag returns the worker with a tag, which is part of its machines' ids.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
}

// Config configures a Pool.
type Config struct {
	Fabric    fabric.Fabric
	Directory Directory
	Self      bourse.WorkerID // this proxy
	Host      string          // identifies this host (see internal/loopback); empty: use tunnels only
	Wait      time.Duration   // time for a machine to start and accept connections; default 30 s
	TTL       time.Duration   // time for which a machine counts as used after a call; default 15 s
	Log       *slog.Logger
}

// Pool contains the upstreams of one proxy. Its methods are safe for concurrent use.
type Pool struct {
	Config

	tasks sync.WaitGroup // calls in progress

	mu        sync.Mutex
	upstreams map[endpoint]*Upstream // guarded by mu, like the fields below
	calls     map[useKey]*useCall
	closed    bool
}

// endpoint identifies an upstream.
type endpoint struct {
	machine bourse.MachineID
	port    int // service port
}

// useKey identifies a call. Concurrent requests with the same key share one call.
type useKey struct {
	endpoint
	start bool
}

// useCall is a call in progress.
type useCall struct {
	done     chan struct{} // closed when upstream or err is set
	upstream *Upstream
	err      error
	cancel   context.CancelFunc

	waiting int // requests waiting for the call, guarded by Pool.mu; when none is left, the call is canceled
}

// New returns an empty pool. It starts nothing.
func New(c Config) *Pool {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	return &Pool{Config: c, upstreams: map[endpoint]*Upstream{}, calls: map[useKey]*useCall{}}
}

// Use returns an upstream for a port of a machine; port 0 is the machine's $PORT. If the
// machine is not running and start is set, Use starts or resumes it, and returns once it
// accepts connections. Concurrent calls for one machine share one request to its worker.
// While the machine still counts as used, the worker is not asked at all. In that case the
// upstream may have ended already, and [Upstream.Dial] fails; call Use again then.
//
// Errors: unavailable if the worker is unknown or was not reached; not_found if the machine
// no longer exists; failed_precondition if it is not running and start is not set, or if it
// cannot be started; timeout if it did not accept connections in time;
// insufficient_capacity if its host is full; conflict while it is leased.
func (w *Pool) Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (*Upstream, error) {
	to, ok := w.Directory.ByTag(machine.Tag())
	if !ok || to.ID != worker {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s is unknown", worker, machine)
	}
	at := endpoint{machine, port}
	key := useKey{at, start}
	w.mu.Lock()
	if known := w.upstreams[at]; known != nil && known.isFresh(time.Now()) {
		w.mu.Unlock()
		if start {
			known.mayStart.Store(true)
		}
		return known, nil
	}
	if w.closed {
		w.mu.Unlock()
		return nil, errStopping
	}
	a := w.calls[key]
	if a == nil {
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Wait+callMargin)
		a = &useCall{done: make(chan struct{}), cancel: cancel}
		w.calls[key] = a
		w.tasks.Go(func() { w.ask(life, a, key, to) })
	}
	a.waiting++
	w.mu.Unlock()
	select {
	case <-a.done:
		return a.upstream, a.err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.waiting--; a.waiting == 0 {
			a.cancel() // if the worker has begun to start the machine, it continues
			if w.calls[key] == a {
				delete(w.calls, key)
			}
		}
		return nil, context.Cause(ctx)
	}
}

// ask calls the worker on behalf of all waiting requests.
func (w *Pool) ask(ctx context.Context, a *useCall, key useKey, to bourse.Member) {
	defer a.cancel()
	reply, err := w.use(ctx, key.endpoint, to, key.start, w.Wait, 1)
	if errors.Is(err, fabric.ErrLost) && ctx.Err() == nil { // the worker has restarted; asking it again is harmless
		err = bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s is unreachable: %w", to.ID, key.machine, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[key] == a {
		delete(w.calls, key)
	}
	switch a.err = err; {
	case err != nil:
	case w.closed:
		a.err = errStopping
	default:
		a.upstream = w.upstreamFor(key.endpoint, to, &reply)
		if key.start {
			a.upstream.mayStart.Store(true)
		}
	}
	close(a.done)
}

func (w *Pool) use(ctx context.Context, at endpoint, to bourse.Member, start bool, wait time.Duration, requests int) (fabric.UseReply, error) {
	return fabric.MachineUse.Call(ctx, w.Fabric, to, fabric.UseRequest{
		Machine: at.machine, Port: at.port, Start: start, Wait: bourse.Duration(wait),
		By: w.Self, Host: w.Host, TTL: bourse.Duration(w.TTL), Requests: requests,
	})
}

// upstreamFor returns the upstream that a reply describes: the existing one, or a new one
// that replaces it. w.mu is held.
func (w *Pool) upstreamFor(at endpoint, to bourse.Member, reply *fabric.UseReply) *Upstream {
	now := time.Now()
	known := w.upstreams[at]
	if known != nil && known.renew(to, reply, w.ttl(reply), now) {
		return known
	}
	if known != nil {
		known.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s was restarted or updated", at.machine), false)
	}
	made := w.newUpstream(at, to, reply, now)
	w.upstreams[at] = made
	return made
}

// ttl returns the time for which a machine counts as used: at most the requested time.
func (w *Pool) ttl(reply *fabric.UseReply) time.Duration {
	return min(max(time.Duration(reply.TTL), 0), w.TTL)
}

// Others returns the latest known number of requests that other proxies have in progress at
// a machine. It is 0 if this proxy does not use the machine.
func (w *Pool) Others(machine bourse.MachineID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for at, u := range w.upstreams {
		if at.machine == machine {
			most = max(most, u.otherRequestCount())
		}
	}
	return most
}

// maxConcurrentRenewals bounds the number of concurrent renewals.
const maxConcurrentRenewals = 64

// Run renews the machines' uses until ctx ends. It then ends all upstreams and their
// tunnels. It must be called only once.
func (w *Pool) Run(ctx context.Context) error {
	tick := time.NewTicker(w.TTL / renewals)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.close()
			return nil
		case <-tick.C:
			w.renewAll(ctx)
		}
	}
}

var errStopping = bourse.Errorf(bourse.CodeUnavailable, "the proxy is shutting down")

func (w *Pool) close() {
	w.mu.Lock()
	w.closed = true
	for _, a := range w.calls {
		a.cancel()
	}
	upstreams := w.upstreams
	w.upstreams = nil
	w.mu.Unlock()
	for _, u := range upstreams {
		u.close(errStopping, true)
	}
	w.tasks.Wait()
}

// renewAll renews upstreams that are in use and removes those that have been idle for long.
func (w *Pool) renewAll(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(maxConcurrentRenewals)
	for _, u := range w.inUse(time.Now()) {
		group.Go(func() error {
			w.renew(ctx, u)
			return nil
		})
	}
	_ = group.Wait() // never returns an error
}

// inUse returns the upstreams that are in use or were used since the previous call.
func (w *Pool) inUse(now time.Time) []*Upstream {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Upstream
	for at, u := range w.upstreams {
		moved := u.active.Swap(false)
		u.mu.Lock()
		ended, busy := u.err != nil, u.requests > 0
		old := !busy && len(u.conns) == 0 && now.Sub(u.lastUsed) > idleTimeout
		u.mu.Unlock()
		switch {
		case ended:
			delete(w.upstreams, at)
		case busy || moved:
			out = append(out, u)
		case old:
			delete(w.upstreams, at)
			u.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s was idle for too long", at.machine), false)
		}
	}
	return out
}

// renew renews a machine's use at its worker. If the worker has not answered by the time
// the use expires, the upstream's tunnels are closed.
func (w *Pool) renew(ctx context.Context, u *Upstream) {
	u.mu.Lock()
	to, requests, until := u.worker, u.requests, u.usedUntil
	u.mu.Unlock()
	if now, ok := w.Directory.ByTag(u.endpoint.machine.Tag()); ok && now.ID == to.ID {
		to = now // its address may have changed
	}
	ctx, cancel := context.WithTimeout(ctx, w.TTL/renewals)
	defer cancel()
	reply, err := w.use(ctx, u.endpoint, to, false, 0, requests)
	switch code := bourse.CodeOf(err); {
	case err == nil && u.renew(to, &reply, w.ttl(&reply), time.Now()):
	case err == nil:
		u.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s is %s or was restarted", u.endpoint.machine, reply.State), false)
		if reply.State == bourse.StateSuspended && requests > 0 && u.mayStart.Load() {
			w.tasks.Go(func() { w.resume(to.ID, u.endpoint) })
		}
	case code == bourse.CodeNotFound || code == bourse.CodeFailedPrecondition:
		u.close(err, false)
	case !time.Now().Before(until):
		w.Log.Warn("tunnels closed because worker does not answer", "worker", to.ID, "machine", u.endpoint.machine, "err", err)
		u.close(err, true)
	default:
		u.active.Store(true) // renew again
	}
}

// resume resumes a machine that was suspended while it had requests in progress. For the
// clients it was merely silent; no connection breaks.
func (w *Pool) resume(worker bourse.WorkerID, at endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Wait+callMargin)
	defer cancel()
	if _, err := w.Use(ctx, worker, at.machine, at.port, true); err != nil {
		w.Log.Warn("resume machine with requests in progress failed", "machine", at.machine, "err", err)
	}
}
