package view

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// maxReaders is how many may read at once; more wait.
const maxReaders = 8

// pool has connections for reading. In memory there is one connection, which
// reader and writer take in turn.
type pool struct {
	mu     sync.Mutex
	path   string
	gen    uint64 // of the file
	idle   []*reader
	closed bool

	slots chan struct{} // one for each reader at work; in memory also for the writer
	only  *sqlite.Conn  // in memory
}

// reader is a connection of a generation of the file.
type reader struct {
	conn *sqlite.Conn
	gen  uint64
}

// reset makes readers open the new file.
func (p *pool) reset(f *file) {
	p.mu.Lock()
	p.gen++
	p.path = f.path
	if p.slots == nil {
		n := maxReaders
		if f.path == "" {
			n = 1
		}
		p.slots = make(chan struct{}, n)
	}
	if f.path == "" {
		p.only = f.conn
	}
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, r := range idle {
		_ = r.conn.Close() // of a file that is gone
	}
}

func (p *pool) generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gen
}

// exclusive keeps readers out while the writer is at work, where they share a
// connection.
func (p *pool) exclusive() (release func()) {
	if p.only == nil {
		return func() {}
	}
	p.slots <- struct{}{}
	return func() { <-p.slots }
}

func (p *pool) close() error {
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

func (p *pool) take() (*reader, error) {
	p.mu.Lock()
	gen, path, closed := p.gen, p.path, p.closed
	var r *reader
	if n := len(p.idle); n > 0 {
		r = p.idle[n-1]
		p.idle = p.idle[:n-1]
	}
	p.mu.Unlock()
	switch {
	case closed:
		return nil, errEnded()
	case p.only != nil:
		return &reader{p.only, gen}, nil
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

func (p *pool) give(r *reader, sound bool) {
	p.mu.Lock()
	keep := sound && !p.closed && r.gen == p.gen
	if keep && p.only == nil {
		p.idle = append(p.idle, r)
	}
	p.mu.Unlock()
	if !keep && r.conn != p.only {
		_ = r.conn.Close() // it was read only
	}
}

// read calls fn with a connection on a snapshot of the file. fn may run any
// number of statements that read: they all see one state. It ends with ctx. fn
// must not call read. CodeUnavailable: the file cannot be read.
func (v *View) read(ctx context.Context, fn func(*sqlite.Conn) error) error {
	select {
	case v.pool.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait to read the view: %w", context.Cause(ctx))
	}
	defer func() { <-v.pool.slots }()
	r, err := v.pool.take()
	if err != nil {
		return v.readFailed(ctx, err)
	}
	defer v.pool.finish(r) // also when fn panics
	if done := ctx.Done(); done != nil {
		r.conn.SetInterrupt(done)
	}
	if err = run(r.conn, "BEGIN"); err == nil {
		err = fn(r.conn)
	}
	if err != nil {
		return v.readFailed(ctx, err)
	}
	return nil
}

// finish ends what a reader began and keeps its connection for the next.
func (p *pool) finish(r *reader) {
	r.conn.SetInterrupt(nil)
	sound := r.conn.AutocommitEnabled() || run(r.conn, "ROLLBACK") == nil
	p.give(r, sound)
}

// readFailed says what an error of reading means, and has the writer look at a
// file that is damaged.
func (v *View) readFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt {
		return fmt.Errorf("read the view: %w", context.Cause(ctx))
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	switch fateOf(err) {
	case fateDamaged:
		v.suspect(err)
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case fateUnavailable, fateKilled:
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case fateBadRow:
	}
	return fmt.Errorf("read the view: %w", err)
}

// suspect has the writer replace a file that a reader found damaged.
func (v *View) suspect(err error) {
	v.mu.Lock()
	v.faults.reading = err
	v.mu.Unlock()
	v.poke()
}
