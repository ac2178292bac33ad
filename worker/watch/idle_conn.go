package watch

import (
	"net"
	"sync/atomic"
	"time"
)

// touchEvery is the minimum time between two calls to touch for one connection. It is shorter than
// the shortest time after which an idle machine is stopped.
const touchEvery = 50 * time.Millisecond

// Conn calls touch, and wraps c in a connection that calls touch again when bytes are transferred,
// but at most once per touchEvery.
func Conn(c net.Conn, touch func()) net.Conn {
	touch()
	out := conn{Conn: c, flow: &flow{touch: touch, begin: time.Now()}}
	if half, ok := c.(closeWriter); ok {
		return halfConn{out, half}
	}
	return out
}

type closeWriter interface{ CloseWrite() error }

type conn struct {
	net.Conn
	flow *flow
}

// halfConn is a conn that supports CloseWrite.
type halfConn struct {
	conn
	half closeWriter
}

func (c halfConn) CloseWrite() error { return c.half.CloseWrite() }

func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.flow.note(n)
	return n, err
}

func (c conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.flow.note(n)
	return n, err
}

type flow struct {
	touch func()
	begin time.Time
	last  atomic.Int64 // time of the last touch, as a duration since begin
}

func (f *flow) note(n int) {
	if n <= 0 {
		return
	}
	now, last := time.Since(f.begin), f.last.Load()
	if now >= time.Duration(last)+touchEvery && f.last.CompareAndSwap(last, int64(now)) {
		f.touch()
	}
}
