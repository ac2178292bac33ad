package mux

import (
	"net"
	"sync"
	"time"
)

// maxSpare is the largest buffer that is reused, in bytes.
const maxSpare = 64 << 10

// Pipe is a connection whose writes do not block: data that the system does not accept
// immediately is buffered until it is flushed. If the connection uses TLS, the Pipe is the
// connection below TLS. Writes block as usual until a [Conn] uses the Pipe.
type Pipe struct {
	net.Conn
	try   func([]byte) (int, error) // writes as much as possible without blocking
	stall time.Duration             // how long the other end may stop reading; 0 means no limit

	mu       sync.Mutex
	muxed    bool   // whether a Conn uses the Pipe
	rest     []byte // data that is not written yet
	flushing bool   // whether rest is being written; if so, new data is appended to it
}

// NewPipe returns a Pipe that owns c.
func NewPipe(c net.Conn) *Pipe { return &Pipe{Conn: c, try: tryWrite(c)} }

// begin makes writes non-blocking.
func (p *Pipe) begin(stall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muxed, p.stall = true, stall
}

// Write writes or buffers all of b.
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

// buffered reports whether there is data to flush.
func (p *Pipe) buffered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rest) > 0
}

// flush writes the buffered data. It blocks while the system does not accept more data. It is not
// safe for concurrent use.
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

// writeSteps writes all of b to c. It fails if no data can be written for the duration stall; 0
// means no limit.
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
