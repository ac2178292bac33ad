package direct

import (
	"context"
	"errors"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/mux"
)

// conns contains a fabric's connections for calls. There is one connection for each combination
// of worker and address that has been called recently.
type conns struct {
	dial   Dialer
	config TLS // nil for plain text
	proof  admission.Proof
	work   sync.WaitGroup

	mu     sync.RWMutex // acquired before the lock of a connection
	peers  map[peerKey]*peer
	closed bool
}

type peerKey struct {
	id      bourse.WorkerID
	role    bourse.Role
	address string
}

// peer is a connection to a worker, or an attempt to open one.
type peer struct {
	ready  chan struct{} // closed once conn and err are set
	conn   *mux.Conn
	err    error              // why the attempt failed; nil if it succeeded
	cancel context.CancelFunc // cancels the attempt
}

// ended reports whether the attempt has failed or the connection no longer accepts calls.
func (p *peer) ended() bool {
	select {
	case <-p.ready:
		return p.conn == nil || p.conn.Ended()
	default:
		return false
	}
}

var errClosed = errors.New("the fabric was closed")

// get returns the connection to a worker, creating it if necessary.
func (cs *conns) get(ctx context.Context, to *bourse.Member) (*mux.Conn, error) {
	key := peerKey{to.ID, to.Role, to.Address}
	cs.mu.RLock()
	p := cs.peers[key]
	cs.mu.RUnlock()
	if p == nil || p.ended() {
		if p = cs.begin(key, *to); p == nil {
			return nil, errClosed
		}
	}
	select {
	case <-p.ready:
		return p.conn, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin starts a connection attempt, unless another goroutine has already started one. It returns
// nil if the fabric is closed.
func (cs *conns) begin(key peerKey, to bourse.Member) *peer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil
	}
	if p := cs.peers[key]; p != nil && !p.ended() {
		return p
	}
	for k, p := range cs.peers {
		if p.ended() {
			delete(cs.peers, k)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	p := &peer{ready: make(chan struct{}), cancel: cancel}
	cs.peers[key] = p
	cs.work.Go(func() { cs.connect(ctx, p, &to) })
	return p
}

// connect opens a connection and reads from it until the connection ends.
func (cs *conns) connect(ctx context.Context, p *peer, to *bourse.Member) {
	p.conn, p.err = cs.open(ctx, to)
	p.cancel()
	close(p.ready)
	if p.conn != nil {
		p.conn.Run()
	}
}

// drain makes later calls use new connections. The current connections end once they have no calls
// in progress.
func (cs *conns) drain() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, p := range cs.peers {
		select {
		case <-p.ready:
			if p.conn != nil {
				p.conn.Leave()
			}
		default: // still connecting; later calls may use this connection
		}
	}
}

// close ends all connections and waits for their goroutines. Later calls fail.
func (cs *conns) close() {
	cs.mu.Lock()
	cs.closed = true
	peers := cs.peers
	cs.peers = nil
	cs.mu.Unlock()
	for _, p := range peers {
		p.cancel()
		<-p.ready
		if p.conn != nil {
			p.conn.Close()
		}
	}
	cs.work.Wait()
}
