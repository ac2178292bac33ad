// Package way is how a proxy gets to machines: one call to the machine's worker
// starts it if need be, waits until it accepts connections, and counts it as in
// use (fabric.MachineUse); the way that comes of it is used until it ends.
//
// A [Way] leads to one start of a machine. Connections go directly where the
// machine has an address that is this host's own, and through its worker's tunnel
// otherwise. While requests are in progress, or bytes flow, the worker is told
// again and again that the machine is in use; a way ends when the machine does,
// and when its worker does not answer for as long as the machine counts as used.
//
// # Whom it believes
//
// A worker may lie. What it says is a direct address is believed only when it is
// on 127.0.0.1 and the worker itself answered at one of this host's addresses:
// such a worker reaches by itself whatever it may have us connect to. Any other
// worker gets its own tunnel, which ends at that worker.
//
// # Goroutines and locks
//
// [Ways.Run] renews, and each call that is waited for has a goroutine. Ways.mu is
// taken before a way's own lock; neither is held over I/O.
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
	// defaultTTL is how long a machine counts as used after it was said so. A
	// third of it is how old the numbers of other proxies' requests may be.
	defaultTTL = 15 * time.Second
	// defaultWait is how long a machine may take to start and accept connections.
	defaultWait = 30 * time.Second
	// renewals is how often a use is renewed while it lasts, so that two lost
	// answers end nothing.
	renewals = 3
	// reserve is added to the wait of a call for its own way.
	callMargin = 5 * time.Second
	// forgetAfter is how long a way is kept that nobody uses.
	idleTimeout = 5 * time.Minute
)

// Directory knows the workers.
type Directory interface {
	// ByTag returns the worker with a tag, which is part of its machines' ids.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
}

// Config says what ways are made of.
type Config struct {
	Fabric    fabric.Fabric
	Directory Directory
	Self      bourse.WorkerID // the proxy
	Host      string          // where it is, as package samehost has it; empty: all goes through tunnels
	Wait      time.Duration   // for a machine to start and accept connections; default 30 s
	TTL       time.Duration   // that a machine counts as used; default 15 s
	Log       *slog.Logger
}

// Ways are the ways of one proxy. Its methods are safe for concurrent use.
type Pool struct {
	Config

	tasks sync.WaitGroup // calls in progress

	mu        sync.Mutex
	upstreams map[endpoint]*Upstream // guarded by mu, as is what follows
	calls     map[useKey]*useCall
	closed    bool
}

// place is what a way leads to.
type endpoint struct {
	machine bourse.MachineID
	port    int // of the service
}

// ask is what one call asks for.
type useKey struct {
	endpoint
	start bool
}

// asking is a call in progress.
type useCall struct {
	done     chan struct{} // closed when what follows is set
	upstream *Upstream
	err      error
	cancel   context.CancelFunc

	waiting int // guarded by Ways.mu; when none is left the call is given up
}

// New makes the ways of a proxy. It starts nothing.
func New(c Config) *Pool {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	return &Pool{Config: c, upstreams: map[endpoint]*Upstream{}, calls: map[useKey]*useCall{}}
}

// Use returns a way to a port of a machine that accepts connections; port 0 means
// its $PORT. It starts or resumes the machine if it does not run and start is set,
// and then answers once it accepts connections. However many ask for one machine at
// the same time, its worker is asked once. While the machine counts as used from
// before, it is not asked at all: then the way may lead nowhere, which [Way.Dial]
// finds out; after an error of Dial another Use asks.
//
// Errors: unavailable when the worker is not there or did not get the question;
// not_found when the machine is gone; failed_precondition when it does not run and
// is not to be started, or cannot be; timeout when it did not accept connections in
// time; insufficient_capacity when its host has no room for it; conflict while it is
// leased.
func (w *Pool) Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (*Upstream, error) {
	to, ok := w.Directory.ByTag(machine.Tag())
	if !ok || to.ID != worker {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s is not there", worker, machine)
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
			a.cancel() // the worker starts the machine all the same, if it has begun to
			if w.calls[key] == a {
				delete(w.calls, key)
			}
		}
		return nil, context.Cause(ctx)
	}
}

// ask asks a worker on behalf of all who wait.
func (w *Pool) ask(ctx context.Context, a *useCall, key useKey, to bourse.Member) {
	defer a.cancel()
	reply, err := w.use(ctx, key.endpoint, to, key.start, w.Wait, 1)
	if errors.Is(err, fabric.ErrLost) && ctx.Err() == nil { // the worker has ended meanwhile: to ask it again does no harm
		err = bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s has gone: %w", to.ID, key.machine, err)
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

// learn returns the way that a reply means: the one that is there, or a new one in
// its place. w.mu is held.
func (w *Pool) upstreamFor(at endpoint, to bourse.Member, reply *fabric.UseReply) *Upstream {
	now := time.Now()
	known := w.upstreams[at]
	if known != nil && known.renew(to, reply, w.ttl(reply), now) {
		return known
	}
	if known != nil {
		known.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s was started again, or updated", at.machine), false)
	}
	made := w.newUpstream(at, to, reply, now)
	w.upstreams[at] = made
	return made
}

// ttl returns how long a machine counts as used: not longer than we asked for.
func (w *Pool) ttl(reply *fabric.UseReply) time.Duration {
	return min(max(time.Duration(reply.TTL), 0), w.TTL)
}

// Others returns how many requests other proxies have in progress at a machine, as
// it was told last; 0 when we do not use it.
func (w *Pool) Others(machine bourse.MachineID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for at, way := range w.upstreams {
		if at.machine == machine {
			most = max(most, way.otherRequestCount())
		}
	}
	return most
}

// renewAtOnce is how many workers are told at the same time.
const maxConcurrentRenewals = 64

// Run tells workers that machines are in use, for as long as they are, until ctx
// ends. Then all ways end, with their tunnels. It is called once.
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

var errStopping = bourse.Errorf(bourse.CodeUnavailable, "the proxy is ending")

func (w *Pool) close() {
	w.mu.Lock()
	w.closed = true
	for _, a := range w.calls {
		a.cancel()
	}
	ways := w.upstreams
	w.upstreams = nil
	w.mu.Unlock()
	for _, way := range ways {
		way.close(errStopping, true)
	}
	w.tasks.Wait()
}

// renewAll renews what is in use, and forgets what has not been for long.
func (w *Pool) renewAll(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(maxConcurrentRenewals)
	for _, way := range w.inUse(time.Now()) {
		group.Go(func() error {
			w.renew(ctx, way)
			return nil
		})
	}
	_ = group.Wait() // there are no errors
}

// inUse returns the ways that were used since the last time, or are.
func (w *Pool) inUse(now time.Time) []*Upstream {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Upstream
	for at, way := range w.upstreams {
		moved := way.active.Swap(false)
		way.mu.Lock()
		ended, busy := way.err != nil, way.requests > 0
		old := !busy && len(way.conns) == 0 && now.Sub(way.lastUsed) > idleTimeout
		way.mu.Unlock()
		switch {
		case ended:
			delete(w.upstreams, at)
		case busy || moved:
			out = append(out, way)
		case old:
			delete(w.upstreams, at)
			way.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s was not used for long", at.machine), false)
		}
	}
	return out
}

// renew tells the machine's worker that it is in use. A worker that does not
// answer for as long as that counts has lost its tunnels.
func (w *Pool) renew(ctx context.Context, way *Upstream) {
	way.mu.Lock()
	to, requests, until := way.worker, way.requests, way.usedUntil
	way.mu.Unlock()
	if now, ok := w.Directory.ByTag(way.endpoint.machine.Tag()); ok && now.ID == to.ID {
		to = now // its address may be another
	}
	ctx, cancel := context.WithTimeout(ctx, w.TTL/renewals)
	defer cancel()
	reply, err := w.use(ctx, way.endpoint, to, false, 0, requests)
	switch code := bourse.CodeOf(err); {
	case err == nil && way.renew(to, &reply, w.ttl(&reply), time.Now()):
	case err == nil:
		way.close(bourse.Errorf(bourse.CodeUnavailable, "machine %s is %s, or was started again", way.endpoint.machine, reply.State), false)
		if reply.State == bourse.StateSuspended && requests > 0 && way.mayStart.Load() {
			w.tasks.Go(func() { w.resume(to.ID, way.endpoint) })
		}
	case code == bourse.CodeNotFound || code == bourse.CodeFailedPrecondition:
		way.close(err, false)
	case !time.Now().Before(until):
		w.Log.Warn("worker does not answer: its tunnels are closed", "worker", to.ID, "machine", way.endpoint.machine, "err", err)
		way.close(err, true)
	default:
		way.active.Store(true) // again
	}
}

// resume has a machine go on that was suspended with requests in progress: to them it is
// silent, and no connection breaks.
func (w *Pool) resume(worker bourse.WorkerID, at endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Wait+callMargin)
	defer cancel()
	if _, err := w.Use(ctx, worker, at.machine, at.port, true); err != nil {
		w.Log.Warn("machine was suspended with requests in progress, and cannot be resumed", "machine", at.machine, "err", err)
	}
}
