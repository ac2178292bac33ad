package mux

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// maxIdleGoroutines is the maximum number of idle goroutines that wait for calls. Reusing them is worthwhile because a
// new goroutine would have to grow its stack, which costs as much as the rest of a call.
const maxIdleGoroutines = 64

// Handler answers a call. It owns the call and its payload until it returns. ctx is canceled if the caller abandons the
// call or the connection ends. The answer is then dropped. If the answer has status 0 or exceeds the limits, the caller
// is notified that there will be no answer.
type Handler func(ctx context.Context, c *Call) Answer

// ServerConfig configures a [Server]. All fields except the limits are optional.
type ServerConfig struct {
	Limits
	Concurrency int // maximum number of concurrent handlers; 0 means no limit
	Queue       int // maximum number of waiting calls
	// Refuse answers calls that arrive while the server drains or while too many calls are in progress. If it is nil,
	// the server closes the connection on which such a call arrives.
	Refuse       func(why error) Answer
	IdleTimeout  time.Duration // approximate time after which a connection is closed if nothing has arrived on it
	WriteTimeout time.Duration // how long the other end may stop reading while data is waiting
}

// Server answers calls with a pool of goroutines. For each connection, one goroutine of the pool reads until a call
// arrives. It then serves this call itself, and another goroutine continues to read the connection. This way, the
// goroutine that wakes up when a call arrives also serves the call.
type Server struct {
	config ServerConfig
	work   sync.WaitGroup
	next   chan *peer    // connections that an idle goroutine must continue to read; never full
	gone   chan struct{} // closed when next receives no more connections
	free   chan struct{} // closed when the server drains and no call is in progress

	mu       sync.Mutex
	open     map[*peer]bool
	running  int           // number of calls that a goroutine is serving
	queue    []*serverCall // calls that wait for a goroutine
	idle     int           // number of waiting goroutines
	draining bool
}

// NewServer returns a server. Call Close to stop it.
func NewServer(config ServerConfig) *Server {
	return &Server{
		config: config, open: map[*peer]bool{},
		next: make(chan *peer, maxIdleGoroutines), gone: make(chan struct{}), free: make(chan struct{}),
	}
}

// Reasons to refuse a call.
var (
	errDraining = errors.New("the server is closing")
	errBusy     = errors.New("too many calls are in progress")
)

// Serve makes h answer the calls on conn. It takes ownership of conn and returns immediately. src is the connection's
// input, which may begin with data that was already read. The handlers' contexts contain the values of ctx, but are not
// canceled when ctx is.
func (s *Server) Serve(ctx context.Context, conn net.Conn, src io.Reader, h Handler) {
	p := &peer{server: s, handler: h, base: context.WithoutCancel(ctx), calls: map[uint64]*serverCall{}}
	p.r, p.w.conn, p.w.stall = newReader(conn, src, &s.config.Limits, 0), conn, s.config.WriteTimeout
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = conn.Close() // no call was read from the connection
		return
	}
	s.open[p] = true
	if s.config.IdleTimeout > 0 {
		p.mu.Lock()
		p.timer = time.AfterFunc(s.config.IdleTimeout, p.checkIdle)
		p.mu.Unlock()
	}
	s.work.Go(func() { s.serveConns(p) })
}

// serveConns is the main function of a goroutine in the pool. It repeatedly reads from a connection
// until a call arrives, and then serves that call.
func (s *Server) serveConns(p *peer) {
	for {
		c := p.read()
		if c == nil {
			return // the connection has ended
		}
		stay := true
		for c != nil {
			c.from.serve(c)
			c, stay = s.end()
		}
		if !stay {
			return
		}
		select {
		case p = <-s.next:
		case <-s.gone: // next receives no more connections
			select {
			case p = <-s.next:
			default:
				return
			}
		}
	}
}

// begin starts, queues or refuses a call. If now is true, the goroutine that read the call must serve it, and another
// goroutine has taken over reading.
func (s *Server) begin(c *serverCall) (now bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return false, errDraining
	case s.config.Concurrency == 0 || s.running < s.config.Concurrency:
	case len(s.queue) < s.config.Queue:
		s.queue = append(s.queue, c)
		return false, nil
	default:
		return false, errBusy
	}
	s.running++
	if s.idle > 0 {
		s.idle--
		s.next <- c.from
	} else {
		s.work.Go(func() { s.serveConns(c.from) })
	}
	return true, nil
}

// end records the end of a call. It returns the next call to serve, if there is one. Otherwise, stay reports whether
// the goroutine should wait for another call.
func (s *Server) end() (next *serverCall, stay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		next = s.queue[0]
		s.queue = s.queue[1:]
		return next, true
	}
	if s.running--; s.running == 0 && s.draining {
		close(s.free)
	}
	if s.idle == maxIdleGoroutines {
		return nil, false
	}
	s.idle++
	return nil, true
}

// unqueue removes an abandoned call from the queue. It reports whether the call was queued.
func (s *Server) unqueue(c *serverCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == c {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (s *Server) remove(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, p)
}

// Drain makes the server refuse new calls and connections.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		if s.running == 0 {
			close(s.free)
		}
	}
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Wait waits until no call is in progress. Call it after Drain. It returns false if ctx is canceled first.
func (s *Server) Wait(ctx context.Context) bool {
	select {
	case <-s.free:
		return true
	case <-ctx.Done():
	}
	select {
	case <-s.free:
		return true
	default:
		return false
	}
}

// Abort drains the server and breaks all connections, which cancels the calls in progress.
func (s *Server) Abort() {
	s.Drain()
	for _, p := range s.all() {
		p.fail(net.ErrClosed)
	}
}

// Close drains the server, cancels the remaining calls with the given cause, waits for
// their handlers, and closes each connection once its waiting data has been written.
func (s *Server) Close(why error) {
	s.Drain()
	for _, p := range s.all() {
		p.cut(why)
	}
	<-s.free
	for _, p := range s.all() {
		p.w.finish()
	}
	close(s.gone)
	s.work.Wait()
}

func (s *Server) all() []*peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*peer, 0, len(s.open))
	for p := range s.open {
		out = append(out, p)
	}
	return out
}
