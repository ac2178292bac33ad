package mux

import (
	"net"
	"sync"
	"time"
)

// maxSpare is how many bytes of a buffer are kept for its next use.
const maxSpare = 64 << 10

// Pipe is a connection that can be written to without waiting: what the system
// does not take at once is kept until it is flushed. Under TLS it is the
// connection below. Until a [Conn] has it, its writes wait as usual.
type Pipe struct {
	net.Conn
	try   func([]byte) (int, error) // writes what is taken at once
	stall time.Duration             // how long the other end may read nothing of what waits; 0: no limit

	mu       sync.Mutex
	muxed    bool   // a Conn has it
	rest     []byte // not taken yet
	flushing bool   // then all goes into rest
}

// NewPipe makes the pipe of a connection, which is its own from then on.
func NewPipe(c net.Conn) *Pipe { return &Pipe{Conn: c, try: tryWrite(c)} }

// begin makes writes not wait any more.
func (p *Pipe) begin(stall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muxed, p.stall = true, stall
}

// Write writes or keeps all of b.
func (p *Pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	if !p.muxed {
		p.mu.Unlock()
		return p.Conn.Write(b)
	}
	defer p.mu.Unlock()
	n := 0
	if !p.flushing && len(p.rest) == 0 {
		var err error
		if n, err = p.try(b); err != nil {
			return n, err
		}
	}
	p.rest = append(p.rest, b[n:]...)
	return len(b), nil
}

// kept reports whether there is something to flush.
func (p *Pipe) kept() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rest) > 0
}

// flush writes what is kept, and waits for the other end to read it. It is for
// one goroutine.
func (p *Pipe) flush() error {
	var done []byte
	for {
		p.mu.Lock()
		b := p.rest
		p.flushing = len(b) > 0
		p.rest = done[:0]
		p.mu.Unlock()
		if len(b) == 0 {
			return nil
		}
		if done = b; cap(b) > maxSpare {
			done = nil
		}
		if err := writeSteps(p.Conn, b, p.stall); err != nil {
			return err
		}
	}
}

// writeSteps writes all of b, as long as the other end reads some of it within
// each stall; 0: however long that takes.
func writeSteps(c net.Conn, b []byte, stall time.Duration) error {
	for len(b) > 0 {
		if stall > 0 {
			if err := c.SetWriteDeadline(time.Now().Add(stall)); err != nil {
				return err
			}
		}
		n, err := c.Write(b[:min(len(b), step)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if stall > 0 {
		return c.SetWriteDeadline(time.Time{})
	}
	return nil
}
