package mux

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// idleCrew is how many goroutines wait for the next call: a new one would grow
// its stack again, which costs as much as everything else here.
const idleCrew = 64

// Handler answers a call, which is its own until it returns, the payload too. ctx
// ends when the caller abandons the call, or the connection ends: then there is
// no one to answer. An answer with status 0, or beyond the limits, is none: the
// caller receives that there will be none.
type Handler func(ctx context.Context, c *Call) Answer

// ServerConfig is how a [Server] treats its connections and calls. All but the
// limits is optional.
type ServerConfig struct {
	Limits
	AtOnce int // handlers at a time; 0: as many as there are calls
	Queue  int // calls that wait for their turn
	// Refuse answers a call too many, or one that comes when the server drains.
	// Without it such a call breaks its connection.
	Refuse  func(why error) Answer
	Silence time.Duration // a connection on which nothing comes for this time, or a little longer, is closed
	Stall   time.Duration // how long the other end may read nothing of what waits for it
}

// Server answers calls. On each connection one goroutine of its crew reads; one
// that has read a call leaves the reading to another and serves it. So a call is
// served by the goroutine that the system woke for it.
type Server struct {
	config ServerConfig
	work   sync.WaitGroup
	next   chan *peer    // to be read by an idle one; buffered for all
	gone   chan struct{} // closed when nothing comes any more
	free   chan struct{} // closed when no call is left, and the server drains

	mu       sync.Mutex
	open     map[*peer]bool
	running  int       // calls that have a goroutine
	queue    []*served // calls that have none yet
	idle     int       // goroutines that wait
	draining bool
}

// NewServer makes a server. It ends with Close.
func NewServer(config ServerConfig) *Server {
	return &Server{
		config: config, open: map[*peer]bool{},
		next: make(chan *peer, idleCrew), gone: make(chan struct{}), free: make(chan struct{}),
	}
}

// Why a server answers no call.
var (
	errDraining = errors.New("the server is closing")
	errBusy     = errors.New("too many calls are in progress")
)

// Serve has h answer the calls of a connection, which is the server's own from
// then on, and returns at once. src is the connection's input, which may begin
// with bytes that were read already. The handlers' contexts have the values of
// ctx, and not its end.
func (s *Server) Serve(ctx context.Context, conn net.Conn, src io.Reader, h Handler) {
	p := &peer{server: s, handler: h, base: context.WithoutCancel(ctx), calls: map[uint64]*served{}}
	p.r, p.w.conn, p.w.stall = newReader(conn, src, &s.config.Limits, 0), conn, s.config.Stall
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = conn.Close() // nothing was read, nothing is lost
		return
	}
	s.open[p] = true
	if s.config.Silence > 0 {
		p.mu.Lock()
		p.timer = time.AfterFunc(s.config.Silence, p.look)
		p.mu.Unlock()
	}
	s.work.Go(func() { s.crew(p) })
}

// crew reads a connection until there is a call on it, which it serves; and then
// others.
func (s *Server) crew(p *peer) {
	for {
		c := p.read()
		if c == nil {
			return // it has ended
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
		case <-s.gone: // from now on nothing is put into next
			select {
			case p = <-s.next:
			default:
				return
			}
		}
	}
}

// begin decides what becomes of a call. With now the goroutine that has read it
// serves it, and another reads on.
func (s *Server) begin(c *served) (now bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return false, errDraining
	case s.config.AtOnce == 0 || s.running < s.config.AtOnce:
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
		s.work.Go(func() { s.crew(c.from) })
	}
	return true, nil
}

// end ends a call. It returns the next one to serve; if there is none it reports
// whether to wait for another.
func (s *Server) end() (next *served, stay bool) {
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
	if s.idle == idleCrew {
		return nil, false
	}
	s.idle++
	return nil, true
}

// unqueue removes a call that no one waits for from the queue. It reports whether
// it was there.
func (s *Server) unqueue(c *served) bool {
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

func (s *Server) forget(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, p)
}

// Drain takes no more calls and connections.
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

// Draining reports whether the server takes no more calls.
func (s *Server) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Wait waits for the calls in progress to end, after Drain. It reports whether
// they ended before ctx did.
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

// Abort takes no more calls, and breaks all connections: no one waits for the
// calls in progress any more.
func (s *Server) Abort() {
	s.Drain()
	for _, p := range s.all() {
		p.fail(net.ErrClosed)
	}
}

// Close drains the server, cancels the calls that are left for the reason why,
// waits for their handlers, and closes all connections once what waits there has
// been written.
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
