package warm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trywrite"
)

// Handler answers one payload. ctx ends when the worker abandons the call, at
// its deadline or before: then the answer is dropped. The call is the
// handler's until it returns, its payload too. A handler that panics ends the
// program.
type Handler func(ctx context.Context, call *Call) Answer

// Serve answers the calls of workers that connect to ln, at most concurrency at
// once (0: as many as come), until ctx ends or ln fails. Then it closes ln and
// all connections, and waits for the handlers, whose contexts have ended. The
// error is ln's, and nil when ctx ended.
func Serve(ctx context.Context, ln net.Listener, concurrency int, h Handler) error {
	ctx, stop := context.WithCancel(ctx)
	s := &server{ctx: ctx, handler: h, limit: concurrency, jobs: make(chan *job)}
	defer s.group.Wait()
	defer stop()
	s.group.Go(func() {
		<-ctx.Done()
		_ = ln.Close() // no more connections are accepted
	})
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return err
		}
		s.group.Go(func() { s.serve(conn) })
	}
}

// server is one Serve.
type server struct {
	ctx     context.Context //nolint:containedctx // of Serve
	handler Handler
	limit   int
	jobs    chan *job // to goroutines that wait for one
	group   sync.WaitGroup

	mu      sync.Mutex
	running int    // handlers
	queue   []*job // beyond the limit
}

// job is a call that came.
type job struct {
	call Call
	id   uint64
	from *workerConn
	ctx  callContext
}

// workerConn is the program's end of a connection.
type workerConn struct {
	w writer

	mu   sync.Mutex
	jobs map[uint64]*job // that have no answer yet and are not abandoned
}

// serve reads a worker's frames until the connection ends.
func (s *server) serve(conn net.Conn) {
	c := &workerConn{jobs: map[uint64]*job{}}
	c.w.conn, c.w.try = conn, trywrite.To(conn)
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	r := newReader(conn)
	var err error
	for err == nil {
		err = s.readRequest(c, r)
	}
	c.w.fail(err)
	c.mu.Lock()
	jobs := c.jobs
	c.jobs = nil
	c.mu.Unlock()
	for _, j := range jobs {
		s.giveUp(j)
	}
}

// readRequest reads one frame.
func (s *server) readRequest(c *workerConn, r *reader) error {
	line, err := r.line()
	if err != nil {
		return err
	}
	f, err := parseRequest(line)
	if err != nil {
		return err
	}
	if f.verb == verbCancel {
		c.mu.Lock()
		j := c.jobs[f.id]
		delete(c.jobs, f.id)
		c.mu.Unlock()
		if j != nil {
			s.giveUp(j)
		}
		return nil
	}
	j := &job{id: f.id, from: c, call: Call{
		Order: string(f.order), Deadline: time.UnixMilli(f.deadline), Type: string(f.media), Payload: make([]byte, f.length),
	}}
	j.ctx.Context, j.ctx.deadline = s.ctx, j.call.Deadline
	if err := r.body(j.call.Payload); err != nil {
		return err
	}
	c.mu.Lock()
	if c.jobs[f.id] != nil {
		err = fmt.Errorf("malformed frame: call %d again", f.id)
	} else {
		c.jobs[f.id] = j
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return s.begin(j)
}

// begin has a job done, by a goroutine that waits for one or by a new one.
func (s *server) begin(j *job) error {
	s.mu.Lock()
	if s.limit > 0 && s.running >= s.limit {
		defer s.mu.Unlock()
		if len(s.queue) >= bourse.MaxTaskConcurrency {
			return errors.New("too many calls")
		}
		s.queue = append(s.queue, j)
		return nil
	}
	s.running++
	s.mu.Unlock()
	select {
	case s.jobs <- j:
	default:
		s.group.Go(func() { s.work(j) })
	}
	return nil
}

// giveUp ends a job's context, and takes it out of the queue.
func (s *server) giveUp(j *job) {
	j.ctx.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == j {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return
		}
	}
}

// work does a job and those after it.
func (s *server) work(j *job) {
	for {
		for ; j != nil; j = s.after() {
			j.from.answer(j, s.handler(&j.ctx, &j.call))
		}
		select {
		case j = <-s.jobs:
		case <-s.ctx.Done():
			return
		}
	}
}

// after ends a job, and returns the next of the queue.
func (s *server) after() *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.running--
		return nil
	}
	j := s.queue[0]
	s.queue = s.queue[1:]
	return j
}

// answer writes a handler's answer, unless the call was abandoned.
func (c *workerConn) answer(j *job, a Answer) {
	c.mu.Lock()
	wanted := c.jobs[j.id] == j
	delete(c.jobs, j.id)
	c.mu.Unlock()
	j.ctx.cancel()
	if !wanted {
		return
	}
	f := frame{verb: verbDone, id: j.id, status: a.Status, length: len(a.Body), media: []byte(a.Type)}
	if a.Status == 0 {
		f.status = 200
	}
	if f.length > bourse.MaxAnswer || !media(a.Type) || f.status < 200 || f.status > 599 {
		a.Body = []byte("the program's answer is not in its bounds")
		f.status, f.length, f.media = 500, len(a.Body), nil
	}
	for {
		ready := c.w.lock()
		if ready == nil {
			break
		}
		c.w.unlock()
		<-ready
	}
	if c.w.err == nil {
		c.w.next = append(appendFrame(c.w.next, &f), a.Body...)
	}
	c.w.unlock()
}
