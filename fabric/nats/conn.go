package nats

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
)

// maxChunk is the maximum number of bytes in one frame, unless the NATS server accepts only smaller messages.
const maxChunk = 64 << 10

func (l *Link) chunk() int {
	if limit := int(l.nats.MaxPayload()) - frameHeader; limit > 0 {
		return min(limit, maxChunk)
	}
	return maxChunk // the link is not connected to NATS, so the server's limit is unknown
}

// Conn is a connection over NATS. It is a net.Conn that can also close its sending side
// separately. Read, Write and Close may be called concurrently with each other.
type Conn struct {
	link          *Link
	name          string // last token of this end's subject
	to            string // subject of the other end
	peer          Address
	local, remote *net.TCPAddr

	writing sync.Mutex // serializes Write
	outgoing

	mu      sync.Mutex
	changed *sync.Cond // signals changes of the fields below; uses mu
	opened  bool       // whether the other end has accepted
	err     error      // why the connection has ended; nil if it has not
	credit  int        // number of bytes that may still be sent
	writeBy deadline
	incoming
}

// outgoing contains the state for numbering and sending a connection's frames.
type outgoing struct {
	sending sync.Mutex
	number  uint32
	out     []byte // buffer for encoding a frame
}

// incoming contains the data that was received but has not been read yet.
type incoming struct {
	in        [][]byte
	waiting   int    // total number of bytes in all slices of in
	creditDue int    // number of bytes read since credit was last sent
	window    int    // upper limit of waiting
	expected  uint32 // number of the next frame
	ended     bool   // no more data will arrive
	readBy    deadline
}

var _ net.Conn = (*Conn)(nil)

// newConn creates a connection and registers it in the link.
func (l *Link) newConn(name, to string, peer Address, port, peerPort uint16) (*Conn, error) {
	c := &Conn{link: l, name: name, to: to, peer: peer, incoming: incoming{window: l.config.Window}, local: tcpAddr(l.own, port), remote: tcpAddr(peer, peerPort)}
	c.changed = sync.NewCond(&c.mu)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	if l.conns[name] != nil {
		return nil, errors.New("the connection already exists")
	}
	l.conns[name] = c
	l.noteAlive(peer)
	return c, nil
}

func (c *Conn) subject() string { return c.link.ownPrefix + "c." + c.name }

// send sends a frame with the next number.
func (c *Conn) send(f frame, to string) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	f.number = c.number
	c.number++
	c.out = f.append(c.out[:0])
	return c.link.send(to, c.subject(), c.out)
}

// receive handles the next frame. It is called from one goroutine and does not block.
func (c *Conn) receive(f frame) {
	c.mu.Lock()
	if f.kind == kindReset {
		c.mu.Unlock()
		c.end(errors.New(string(f.data)))
		return
	}
	err := c.apply(f)
	c.mu.Unlock()
	c.changed.Broadcast()
	if err != nil {
		c.reset(err)
	}
}

var errProtocol = errors.New("the other end violated the protocol")

// apply applies a frame. The caller holds c.mu.
func (c *Conn) apply(f frame) error {
	switch {
	case c.err != nil:
		return nil //nolint:nilerr // the connection has ended: drop late frames
	case f.number != c.expected:
		return errLost
	}
	c.expected++
	switch f.kind {
	case kindAccept:
		if c.opened {
			return errProtocol
		}
		c.opened, c.credit = true, int(f.window)
	case kindData:
		if c.waiting += len(f.data); c.waiting > c.window || c.ended || !c.opened {
			return errProtocol
		}
		if len(f.data) > 0 {
			c.in = append(c.in, f.data)
		}
	case kindCredit:
		if c.credit += int(f.window); c.credit > 1<<30 {
			return errProtocol
		}
	case kindEnd:
		c.ended = true
	default:
		return errProtocol
	}
	return nil
}

// Read implements net.Conn. It returns io.EOF when the other end has closed its sending side.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	for len(c.in) == 0 && !c.ended && c.err == nil && !c.readBy.passed() && len(p) > 0 {
		c.changed.Wait()
	}
	switch {
	case c.readBy.passed():
		c.mu.Unlock()
		return 0, c.failed("read", os.ErrDeadlineExceeded)
	case len(p) == 0:
		c.mu.Unlock()
		return 0, nil
	case len(c.in) == 0 && c.ended && !errors.Is(c.err, net.ErrClosed):
		c.mu.Unlock()
		return 0, io.EOF
	case len(c.in) == 0 || errors.Is(c.err, net.ErrClosed) || c.err != nil && !c.ended:
		err := c.err
		c.mu.Unlock()
		return 0, c.failed("read", err)
	}
	n := copy(p, c.in[0])
	if c.in[0] = c.in[0][n:]; len(c.in[0]) == 0 {
		c.in[0] = nil
		c.in = c.in[1:]
	}
	c.waiting -= n
	c.creditDue += n
	credit := 0
	if c.creditDue >= c.window/2 && !c.ended && c.err == nil {
		credit, c.creditDue = c.creditDue, 0
	}
	c.mu.Unlock()
	if credit > 0 {
		if err := c.send(frame{kind: kindCredit, window: uint32(credit)}, c.to); err != nil {
			c.reset(err)
		}
	}
	return n, nil
}

// Write implements net.Conn. It blocks while the other end's receive window is full.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	done := 0
	for {
		n, err := c.take(len(p) - done)
		if err != nil {
			return done, c.failed("write", err)
		}
		if n > 0 {
			if err := c.send(frame{kind: kindData, data: p[done : done+n]}, c.to); err != nil {
				c.end(err)
				return done, c.failed("write", err)
			}
		}
		if done += n; done == len(p) {
			return done, nil
		}
	}
}

// take waits until at least one byte may be sent. It then reserves up to n bytes and returns
// their number.
func (c *Conn) take(n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.credit == 0 && c.err == nil && !c.writeBy.passed() && n > 0 {
		c.changed.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.writeBy.passed() {
		return 0, os.ErrDeadlineExceeded
	}
	n = min(n, c.credit, c.link.chunk())
	c.credit -= n
	return n, nil
}

// CloseWrite closes the sending side. Data from the other end can still be read.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err == nil {
		err = c.send(frame{kind: kindEnd}, c.to)
	}
	if err != nil {
		return c.failed("close", err)
	}
	return nil
}

// Close implements net.Conn. Data that has already been written is still delivered.
func (c *Conn) Close() error {
	c.mu.Lock()
	live := c.err == nil && c.opened
	c.mu.Unlock()
	if live {
		_ = c.send(frame{kind: kindEnd}, c.to) // nothing can be done if this fails
	}
	c.end(net.ErrClosed)
	return nil
}

// Abort ends the connection immediately. The other end sees a broken connection instead of EOF.
func (c *Conn) Abort() { c.reset(errAborted) }

var errAborted = errors.New("the other end aborted the connection")

// reset ends the connection immediately and notifies the other end.
func (c *Conn) reset(why error) {
	if !c.end(why) {
		return
	}
	c.link.Resets.Add(1)
	// If this fails, the other end notices when it next sends data.
	_ = c.send(frame{kind: kindReset, data: []byte(why.Error())}, c.to)
}

// end ends the connection without notifying the other end. It reports whether the connection was
// open.
func (c *Conn) end(why error) bool {
	c.link.mu.Lock()
	if c.link.conns[c.name] == c {
		delete(c.link.conns, c.name)
	}
	c.link.mu.Unlock()
	c.mu.Lock()
	alive := c.err == nil
	if alive {
		c.err = why
	} else if errors.Is(why, net.ErrClosed) {
		c.in, c.waiting = nil, 0
	}
	c.mu.Unlock()
	c.changed.Broadcast()
	return alive
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "nats", Source: c.local, Addr: c.remote, Err: err}
}
