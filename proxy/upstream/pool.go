// Package upstream connects a proxy to machines. A single call to a machine's worker (fabric.MachineUse) starts the
// machine if necessary, waits until the machine accepts connections, and marks the machine as in use. The resulting
// [Upstream] is reused until it ends.
//
// An [Upstream] belongs to one run of a machine. Connections go directly to the machine if it has an address on this
// host, and through its worker's tunnel otherwise. While requests are in progress or bytes flow, the pool regularly
// repeats the call, so that the machine remains marked as in use. An upstream ends when its machine stops, or when
// its worker has been unresponsive for so long that the machine no longer counts as in use.
//
// # Trust
//
// A worker may be malicious. A machine address that a worker reports is used directly only if it is on 127.0.0.1, and
// only if the worker itself answers at one of this host's addresses. Such a worker gains nothing by lying, because it
// could connect to any local address itself. All other machines are reached through the tunnel, which ends at their
// own worker.
//
// # Goroutines and locks
//
// [Pool.Run] renews the machines' uses. Each call in progress has its own goroutine. Pool.mu is locked before an
// upstream's own mutex; neither is held across I/O.
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
	// defaultTTL is how long a machine counts as used after a call. Calls are repeated after a third of this time, so
	// the reported number of other proxies' requests is usually at most a third of defaultTTL old.
	defaultTTL = 15 * time.Second
	// defaultWait is how long a machine may take to start and accept connections.
	defaultWait = 30 * time.Second
	// renewals is the number of renewals per TTL. With 3, an upstream survives the loss of two consecutive answers.
	renewals = 3
	// callMargin is added to the time limit of a call, to allow for the network round trip.
	callMargin = 5 * time.Second
	// idleTimeout is how long the pool keeps an unused upstream.
	idleTimeout = 5 * time.Minute
)

// Directory finds workers.
type Directory interface {
	// ByTag returns the worker with the given tag, which is part of its machines' IDs.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
}

// Config configures a Pool.
type Config struct {
	Fabric    fabric.Fabric
	Directory Directory
	Self      bourse.WorkerID // ID of this proxy
	Host      string          // identifies this host (see internal/loopback); "": all machines are reached through tunnels
	Wait      time.Duration   // how long a machine may take to start and accept connections; default 30 s
	TTL       time.Duration   // how long a machine counts as used after a call; default 15 s
	Log       *slog.Logger
}

// Pool contains the upstreams of one proxy. Its methods are safe for concurrent use.
type Pool struct {
	Config

	tasks sync.WaitGroup // counts the calls in progress

	mu        sync.Mutex
	upstreams map[endpoint]*Upstream // guarded by mu, like the fields below
	calls     map[useKey]*useCall
	closed    bool
}

// endpoint identifies an upstream.
type endpoint struct {
	machine bourse.MachineID
	port    int // port of the service
}

// useKey identifies a call. Concurrent requests with equal keys share one call.
type useKey struct {
	endpoint
	start bool
}

// useCall is a call in progress.
type useCall struct {
	done     chan struct{} // closed once upstream or err is set
	upstream *Upstream
	err      error
	cancel   context.CancelFunc

	waiting int // number of requests that wait for the call, which is canceled once there are none; guarded by Pool.mu
}

// New returns an empty pool. It does not start any goroutines.
func New(c Config) *Pool {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	return &Pool{Config: c, upstreams: map[endpoint]*Upstream{}, calls: map[useKey]*useCall{}}
}

// Use returns an upstream for a port of a machine. Port 0 is the machine's $PORT. If the machine is not running and
// start is set, Use asks the machine's worker to start or resume it, and waits until the machine accepts connections.
// Concurrent calls for the same machine share one request to the worker. While the machine counts as used, Use does not
// call the worker at all. If the machine has stopped in the meantime, [Upstream.Dial] fails, and the caller should call
// Use again.
//
// Errors: unavailable if the worker is unknown or unreachable; not_found if the machine no longer exists;
// failed_precondition if the machine is not running and start is not set, or if it cannot be started; timeout if the
// machine does not accept connections in time; insufficient_capacity if its host is full; conflict while the machine is
// leased.
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
			a.cancel() // a worker that is already starting the machine continues
			if w.calls[key] == a {
				delete(w.calls, key)
			}
		}
		return nil, context.Cause(ctx)
	}
}

// ask calls the worker, on behalf of all requests that wait for the call's result.
func (w *Pool) ask(ctx context.Context, a *useCall, key useKey, to bourse.Member) {
	defer a.cancel()
	reply, err := w.use(ctx, key.endpoint, to, key.start, w.Wait, 1)
	if errors.Is(err, fabric.ErrLost) && ctx.Err() == nil {
		// Most likely, the worker has restarted. Repeating the call is harmless, so report an error that can be
		// retried.
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

// upstreamFor returns the upstream that matches a reply: either the existing upstream or a new one that replaces it.
// The caller holds w.mu.
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

// ttl returns how long a machine counts as used according to a reply, but at most the requested time.
func (w *Pool) ttl(reply *fabric.UseReply) time.Duration {
	return min(max(time.Duration(reply.TTL), 0), w.TTL)
}

// Others returns the number of requests that other proxies have in progress on a machine, as last
// reported. If this proxy does not use the machine, the number is 0.
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

// maxConcurrentRenewals is the maximum number of renewals in progress at the same time.
const maxConcurrentRenewals = 64

// Run renews the uses of machines until ctx is done. It then ends all upstreams and closes their tunnels. It must be
// called only once.
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

// renewAll renews the upstreams that are in use, and removes those that have not been used for a
// long time.
func (w *Pool) renewAll(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(maxConcurrentRenewals)
	for _, u := range w.inUse(time.Now()) {
		group.Go(func() error {
			w.renew(ctx, u)
			return nil
		})
	}
	_ = group.Wait() // no function of the group returns an error
}

// inUse returns the upstreams that are in use or have been used since the previous call.
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

// renew asks a machine's worker to renew the use of the machine. If the use expires before the worker answers, renew
// closes the upstream's tunnels.
func (w *Pool) renew(ctx context.Context, u *Upstream) {
	u.mu.Lock()
	to, requests, until := u.worker, u.requests, u.usedUntil
	u.mu.Unlock()
	if now, ok := w.Directory.ByTag(u.endpoint.machine.Tag()); ok && now.ID == to.ID {
		to = now // the worker's address may have changed
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
		u.active.Store(true) // try again at the next renewal
	}
}

// resume resumes a machine that was suspended while it had requests in progress. Its connections survive, so clients
// notice only a pause.
func (w *Pool) resume(worker bourse.WorkerID, at endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Wait+callMargin)
	defer cancel()
	if _, err := w.Use(ctx, worker, at.machine, at.port, true); err != nil {
		w.Log.Warn("resume machine with requests in progress failed", "machine", at.machine, "err", err)
	}
}
