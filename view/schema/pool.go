package schema

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// maxReaders is the maximum number of concurrent readers. Further readers wait.
const maxReaders = 8

// Pool provides connections for readers. An in-memory view has only one connection, which the readers and the
// writer share.
type Pool struct {
	mu         sync.Mutex
	path       string
	generation uint64 // generation of the current file
	idle       []*reader
	closed     bool

	slots  chan struct{} // one element for each active reader and, in an in-memory view, for the active writer
	shared *sqlite.Conn  // the only connection of an in-memory view
}

// reader is a reader's connection to one generation of the file.
type reader struct {
	conn       *sqlite.Conn
	generation uint64
}

// Reset replaces the file: from now on, readers use f.
func (p *Pool) Reset(f *File) {
	p.mu.Lock()
	p.generation++
	p.path = f.Path
	if p.slots == nil {
		n := maxReaders
		if f.Path == "" {
			n = 1
		}
		p.slots = make(chan struct{}, n)
	}
	if f.Path == "" {
		p.shared = f.Conn
	}
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, r := range idle {
		_ = r.conn.Close() // this is a connection to the replaced file, so the error does not matter
	}
}

// Generation returns how many files the pool has used so far, including the current one.
func (p *Pool) Generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// Exclusive gives the writer exclusive use of an in-memory view's connection until release is
// called. It has no effect if readers have their own connections.
func (p *Pool) Exclusive() (release func()) {
	if p.shared == nil {
		return func() {}
	}
	p.slots <- struct{}{}
	return func() { <-p.slots }
}

// Close closes the pool and its idle connections. Connections in use are closed when they are
// returned.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var err error
	for _, r := range idle {
		err = errors.Join(err, r.conn.Close())
	}
	return err
}

func (p *Pool) take() (*reader, error) {
	p.mu.Lock()
	gen, path, closed := p.generation, p.path, p.closed
	var r *reader
	if n := len(p.idle); n > 0 {
		r = p.idle[n-1]
		p.idle = p.idle[:n-1]
	}
	p.mu.Unlock()
	switch {
	case closed:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the file has been closed")
	case p.shared != nil:
		return &reader{p.shared, gen}, nil
	case r != nil:
		return r, nil
	}
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busyTimeout)
	return &reader{c, gen}, nil
}

func (p *Pool) put(r *reader, sound bool) {
	p.mu.Lock()
	keep := sound && !p.closed && r.generation == p.generation
	if keep && p.shared == nil {
		p.idle = append(p.idle, r)
	}
	p.mu.Unlock()
	if !keep && r.conn != p.shared {
		_ = r.conn.Close() // the connection is read-only, so nothing can be lost
	}
}

// Read calls fn with a connection to a consistent snapshot of the file. fn may execute any number
// of read-only statements. They all see the same state, and are interrupted when ctx is done. fn
// must not call Read.
func (p *Pool) Read(ctx context.Context, fn func(*sqlite.Conn) error) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a connection: %w", context.Cause(ctx))
	}
	defer func() { <-p.slots }()
	r, err := p.take()
	if err != nil {
		return err
	}
	defer p.finish(r) // even if fn panics
	if done := ctx.Done(); done != nil {
		r.conn.SetInterrupt(done)
	}
	if err = Run(r.conn, "BEGIN"); err == nil {
		err = fn(r.conn)
	}
	if err != nil && ctx.Err() != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt {
		return context.Cause(ctx)
	}
	return err
}

// finish ends the reader's transaction and returns its connection to the pool.
func (p *Pool) finish(r *reader) {
	r.conn.SetInterrupt(nil)
	sound := r.conn.AutocommitEnabled() || Run(r.conn, "ROLLBACK") == nil
	p.put(r, sound)
}
