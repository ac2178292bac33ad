package direct

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// shunned is how long a worker that takes no calls is not asked again: one of an
// older release; and shunnedBriefly one that did not answer, which perhaps is about
// to end or to begin.
const shunned, shunnedBriefly = time.Minute, time.Second

// lines are a fabric's connections of calls: one to each worker that was called
// lately, by its name and address.
type lines struct {
	dial   Dialer
	config TLS // nil: in the clear
	proof  admission.Proof
	work   sync.WaitGroup

	mu     sync.RWMutex // taken under no other lock
	peers  map[peerKey]*peer
	closed bool
}

type peerKey struct {
	id      bourse.WorkerID
	role    bourse.Role
	address string
}

// peer is a worker to which there is a connection, or was to be one.
type peer struct {
	ready  chan struct{}      // closed when what follows is set
	line   *line              // nil: there is none
	err    error              // why it cannot be reached; nil: it takes no calls
	until  time.Time          // with neither; then it may be tried again
	cancel context.CancelFunc // of trying
}

func keyOf(m *bourse.Member) peerKey { return peerKey{m.ID, m.Role, m.Address} }

// now returns the connection to a worker if there is one now.
func (ls *lines) now(to *bourse.Member) *line {
	ls.mu.RLock()
	p := ls.peers[keyOf(to)]
	ls.mu.RUnlock()
	if p == nil || !p.known() {
		return nil
	}
	return p.line
}

func (p *peer) known() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// get returns the connection to a worker, which it makes if there is none: nil if the
// worker takes no calls, an error if it cannot be reached.
func (ls *lines) get(ctx context.Context, to *bourse.Member) (*line, error) {
	key := keyOf(to)
	ls.mu.RLock()
	p := ls.peers[key]
	ls.mu.RUnlock()
	if p == nil || p.stale() {
		if p = ls.begin(key, *to); p == nil {
			return nil, nil
		}
	}
	if !p.known() {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p.line, p.err
}

// stale reports whether a worker that took no calls may be tried again.
func (p *peer) stale() bool {
	return p.known() && p.line == nil && p.err == nil && time.Now().After(p.until)
}

// begin makes a connection, unless another goroutine does: nil when there are to
// be no more.
func (ls *lines) begin(key peerKey, to bourse.Member) *peer {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil
	}
	if p := ls.peers[key]; p != nil && !p.stale() {
		return p
	}
	for k, p := range ls.peers { // of workers that have left for good
		if p.stale() {
			delete(ls.peers, k)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	p := &peer{ready: make(chan struct{}), cancel: cancel}
	ls.peers[key] = p
	ls.work.Go(func() { ls.connect(ctx, key, p, &to) })
	return p
}

// connect makes a connection and then reads from it until it ends.
func (ls *lines) connect(ctx context.Context, key peerKey, p *peer, to *bourse.Member) {
	forget := func() { ls.forget(key, p) }
	l, r, err := ls.open(ctx, to, forget)
	p.cancel()
	ls.mu.Lock()
	late := ls.closed
	switch {
	case errors.Is(err, errNoCalls):
		p.until = time.Now().Add(shunned)
	case errors.Is(err, errNoAnswer):
		p.until = time.Now().Add(shunnedBriefly)
	case err != nil || late:
		p.err = cmp.Or(err, errClosed)
		delete(ls.peers, key)
	default:
		p.line = l
	}
	ls.mu.Unlock()
	close(p.ready)
	switch {
	case p.line != nil:
		l.serve(r)
	case l != nil:
		l.end(errClosed)
	}
}

// forget removes a connection that has ended.
func (ls *lines) forget(key peerKey, p *peer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.peers[key] == p {
		delete(ls.peers, key)
	}
}

// close ends all connections and waits for what they have started. From now on
// there are none.
func (ls *lines) close() {
	ls.mu.Lock()
	ls.closed = true
	var open []*line
	for _, p := range ls.peers {
		p.cancel()
		if p.known() && p.line != nil {
			open = append(open, p.line)
		}
	}
	ls.mu.Unlock()
	for _, l := range open {
		l.end(errClosed)
	}
	ls.work.Wait()
}

var (
	errNoCalls  = errors.New("it takes no calls")
	errNoAnswer = errors.New("it does not say whether it takes calls")
	errClosed   = errors.New("the fabric was closed")
)
