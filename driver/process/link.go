package process

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// link is a daemon's connection to its supervisor.
type link struct {
	conn *net.UnixConn
	in   *bufio.Reader

	writing sync.Mutex

	mu    sync.Mutex
	last  uint64
	calls map[uint64]*pending
	err   error // set when the connection has broken
}

// pending is a request that has not been answered.
type pending struct {
	done  chan *reply  // has capacity 1; closed without a value if the link breaks
	apply func(*reply) // called by the reader with each frame of the answer, before the last frame is sent to done; may be nil
}

func newLink(conn *net.UnixConn) *link {
	return &link{conn: conn, in: bufio.NewReader(conn), calls: map[uint64]*pending{}}
}

func errLinkEnded(cause error) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "cannot reach the supervisor", Err: cause}
}

// send sends a request. The returned channel receives the last frame of the answer. If the link breaks first, the
// channel is closed. apply may be nil; see pending.
func (l *link) send(req *request, apply func(*reply)) (<-chan *reply, error) {
	p := &pending{done: make(chan *reply, 1), apply: apply}
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return nil, errLinkEnded(l.err)
	}
	l.last++
	req.ID = l.last
	l.calls[req.ID] = p
	l.mu.Unlock()

	if err := l.write(req); err != nil {
		l.drop(req.ID)
		if errors.Is(err, companion.ErrFrameSize) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "command and environment are too large: %w", err)
		}
		return nil, errLinkEnded(err)
	}
	return p.done, nil
}

// call sends a request and waits for the answer.
func (l *link) call(ctx context.Context, req *request, apply func(*reply)) (*reply, error) {
	done, err := l.send(req, apply)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-done:
		if r == nil {
			return nil, errLinkEnded(l.ended())
		}
		return r, r.Error.Err()
	case <-ctx.Done():
		// If the answer arrives later, it is still passed to apply.
		if req.Op == opWatch || req.Op == opStop || req.Op == opFreeze || req.Op == opDestroy {
			_ = l.write(&request{ID: req.ID, Op: opCancel}) // if this fails, the link is broken, which also cancels the request
		}
		return nil, ctx.Err()
	}
}

func (l *link) write(req *request) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return companion.WriteFrame(l.conn, req)
}

func (l *link) drop(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
}

func (l *link) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// errReplaced is the error of a link that broke because another daemon connected to the supervisor.
var errReplaced = errors.New("another daemon has connected to the supervisor")

// read reads answers and events until the connection breaks. It calls news with each event.
func (l *link) read(news func(*reply)) error {
	err := l.readAll(news)
	_ = l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for id, p := range l.calls {
		close(p.done)
		delete(l.calls, id)
	}
	return err
}

func (l *link) readAll(news func(*reply)) error {
	for {
		r := new(reply)
		if err := companion.ReadFrame(l.in, r); err != nil {
			return err
		}
		switch {
		case r.Replaced:
			return errReplaced
		case r.ID == 0:
			news(r)
		default:
			l.answer(r)
		}
	}
}

func (l *link) answer(r *reply) {
	l.mu.Lock()
	p := l.calls[r.ID]
	if p != nil && !r.More {
		delete(l.calls, r.ID)
	}
	l.mu.Unlock()
	if p == nil {
		return
	}
	if p.apply != nil {
		p.apply(r)
	}
	if !r.More {
		p.done <- r
	}
}
