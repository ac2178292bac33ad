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
package way

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

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
	reserve = 5 * time.Second
	// forgetAfter is how long a way is kept that nobody uses.
	forgetAfter = 5 * time.Minute
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
type Ways struct {
	Config

	work sync.WaitGroup // calls in progress

	mu     sync.Mutex
	ways   map[place]*Way // guarded by mu, as is what follows
	asking map[ask]*asking
	closed bool
}

// place is what a way leads to.
type place struct {
	machine bourse.MachineID
	port    int // of the service
}

// ask is what one call asks for.
type ask struct {
	place
	start bool
}

// asking is a call in progress.
type asking struct {
	done   chan struct{} // closed when what follows is set
	way    *Way
	err    error
	cancel context.CancelFunc

	waiting int // guarded by Ways.mu; when none is left the call is given up
}

// New makes the ways of a proxy. It starts nothing.
func New(c Config) *Ways {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	return &Ways{Config: c, ways: map[place]*Way{}, asking: map[ask]*asking{}}
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
func (w *Ways) Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (*Way, error) {
	to, ok := w.Directory.ByTag(machine.Tag())
	if !ok || to.ID != worker {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s is not there", worker, machine)
	}
	at := place{machine, port}
	key := ask{at, start}
	w.mu.Lock()
	if known := w.ways[at]; known != nil && known.good(time.Now()) {
		w.mu.Unlock()
		if start {
			known.starts.Store(true)
		}
		return known, nil
	}
	if w.closed {
		w.mu.Unlock()
		return nil, errClosing
	}
	a := w.asking[key]
	if a == nil {
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Wait+reserve)
		a = &asking{done: make(chan struct{}), cancel: cancel}
		w.asking[key] = a
		w.work.Go(func() { w.ask(life, a, key, to) })
	}
	a.waiting++
	w.mu.Unlock()
	select {
	case <-a.done:
		return a.way, a.err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.waiting--; a.waiting == 0 {
			a.cancel() // the worker starts the machine all the same, if it has begun to
			if w.asking[key] == a {
				delete(w.asking, key)
			}
		}
		return nil, context.Cause(ctx)
	}
}

// ask asks a worker on behalf of all who wait.
func (w *Ways) ask(ctx context.Context, a *asking, key ask, to bourse.Member) {
	defer a.cancel()
	reply, err := w.call(ctx, key.place, to, key.start, w.Wait, 1)
	if errors.Is(err, fabric.ErrLost) && ctx.Err() == nil { // the worker has ended meanwhile: to ask it again does no harm
		err = bourse.Errorf(bourse.CodeUnavailable, "worker %s of machine %s has gone: %w", to.ID, key.machine, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking[key] == a {
		delete(w.asking, key)
	}
	switch a.err = err; {
	case err != nil:
	case w.closed:
		a.err = errClosing
	default:
		a.way = w.learn(key.place, to, &reply)
		if key.start {
			a.way.starts.Store(true)
		}
	}
	close(a.done)
}

func (w *Ways) call(ctx context.Context, at place, to bourse.Member, start bool, wait time.Duration, requests int) (fabric.UseReply, error) {
	return fabric.MachineUse.Call(ctx, w.Fabric, to, fabric.UseRequest{
		Machine: at.machine, Port: at.port, Start: start, Wait: bourse.Duration(wait),
		By: w.Self, Host: w.Host, TTL: bourse.Duration(w.TTL), Requests: requests,
	})
}

// learn returns the way that a reply means: the one that is there, or a new one in
// its place. w.mu is held.
func (w *Ways) learn(at place, to bourse.Member, reply *fabric.UseReply) *Way {
	now := time.Now()
	known := w.ways[at]
	if known != nil && known.renew(to, reply, w.ttl(reply), now) {
		return known
	}
	if known != nil {
		known.end(bourse.Errorf(bourse.CodeUnavailable, "machine %s was started again, or updated", at.machine), false)
	}
	made := w.newWay(at, to, reply, now)
	w.ways[at] = made
	return made
}

// ttl returns how long a machine counts as used: not longer than we asked for.
func (w *Ways) ttl(reply *fabric.UseReply) time.Duration {
	return min(max(time.Duration(reply.TTL), 0), w.TTL)
}

// Others returns how many requests other proxies have in progress at a machine, as
// it was told last; 0 when we do not use it.
func (w *Ways) Others(machine bourse.MachineID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for at, way := range w.ways {
		if at.machine == machine {
			most = max(most, way.toldOthers())
		}
	}
	return most
}
