// Package throttle limits what a server takes on, and divides what is scarce fairly
// among organizations and addresses:
//
//   - [Turns] limits how many orders are in progress, and [Rates] how many begin each
//     second.
//   - [Fair] divides a limited resource among its users. There are no quotas: once the
//     resource is used up, the user that holds the most gives way.
//   - [Bodies] limits the memory that request bodies and replies take.
package throttle

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// TurnsConfig bounds orders in progress. The zero value of each field means its
// default.
type TurnsConfig struct {
	AtOnce int // orders that are worked on; default 32 for each processor
	Queue  int // that wait for a turn; default 4 times AtOnce
	// InProgress is how many there are at all, those included that hold no
	// turn any more. Default 16 times AtOnce.
	InProgress int
	Patience   time.Duration // how long one waits for its turn; default 1 s
}

func (c TurnsConfig) withDefaults() TurnsConfig {
	if c.AtOnce <= 0 {
		c.AtOnce = 32 * runtime.GOMAXPROCS(0)
	}
	if c.Queue <= 0 {
		c.Queue = 4 * c.AtOnce
	}
	if c.InProgress <= 0 {
		c.InProgress = 16 * c.AtOnce
	}
	if c.Patience <= 0 {
		c.Patience = time.Second
	}
	return c
}

// Turns admits as many orders as can be worked on at once, in the order in which
// they came. It is safe for concurrent use.
//
// An order holds its turn for a limited time: one that takes longer waits for
// something else than this server, an image to be pulled or a program to
// answer, and others may begin meanwhile. It counts as in progress until it
// ends.
type Turns struct {
	config TurnsConfig

	mu      sync.Mutex
	taken   int
	all     int       // in progress, with a turn or without one
	waiting list.List // of *waiter, first come first
}

type waiter struct {
	turn chan struct{} // closed when it has one
}

// NewTurns makes turns. It starts nothing.
func NewTurns(config TurnsConfig) *Turns { return &Turns{config: config.withDefaults()} }

// Turn is an order in progress.
type Turn struct {
	of    *Turns
	lease *time.Timer
}

// Take waits for a turn, which lasts for lease at most. The caller calls Done
// when the order has ended. Codes: rate_limited, canceled.
func (t *Turns) Take(ctx context.Context, lease time.Duration) (*Turn, error) {
	t.mu.Lock()
	switch {
	case !t.room() && (t.all >= t.config.InProgress || t.waiting.Len() >= t.config.Queue):
		n := t.all + t.waiting.Len()
		t.mu.Unlock()
		return nil, bourse.Errorf(bourse.CodeRateLimited, "%d orders are in progress, as many as this server takes at once: nothing was done, repeat it later", n)
	case t.room():
		t.taken++
		t.all++
		t.mu.Unlock()
	default:
		w := &waiter{turn: make(chan struct{})}
		place := t.waiting.PushBack(w)
		t.mu.Unlock()
		if err := t.wait(ctx, w, place); err != nil {
			return nil, err
		}
	}
	turn := &Turn{of: t}
	turn.lease = time.AfterFunc(lease, func() { t.give(1, 0) })
	return turn, nil
}

// wait waits until w has a turn.
func (t *Turns) wait(ctx context.Context, w *waiter, place *list.Element) error {
	patience := time.NewTimer(t.config.Patience)
	defer patience.Stop()
	select {
	case <-w.turn:
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case <-w.turn: // just now
		t.mu.Unlock()
		return nil
	default:
	}
	t.waiting.Remove(place)
	t.mu.Unlock()
	if ctx.Err() != nil {
		return bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", context.Cause(ctx))
	}
	return bourse.Errorf(bourse.CodeRateLimited, "no turn within %s: nothing was done, repeat it later", t.config.Patience)
}

// Load returns how many orders are in progress, and how many wait for a turn.
func (t *Turns) Load() (inProgress, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all, t.waiting.Len()
}

// room reports whether another order may be worked on. t.mu is held.
func (t *Turns) room() bool { return t.taken < t.config.AtOnce && t.all < t.config.InProgress }

// give releases turns and orders in progress, and admits the order that waits longest.
func (t *Turns) give(turns, orders int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken -= turns
	t.all -= orders
	for first := t.waiting.Front(); first != nil && t.room(); first = t.waiting.Front() {
		t.waiting.Remove(first)
		t.taken++
		t.all++
		close(first.Value.(*waiter).turn)
	}
}

// Done ends an order. It is called once.
func (t *Turn) Done() {
	turns := 0
	if t.lease.Stop() {
		turns = 1
	}
	t.of.give(turns, 1)
}
