package fabric

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// tunnelProtocol is the upgrade protocol for tunnels. After the upgrade, the connection carries only the machine port's
// bytes.
const tunnelProtocol = "bourse-tunnel"

// Tunnel is a connection to a machine's port through the machine's worker. Either end may close its sending side
// separately. Closing a Tunnel whose own sending side is still open aborts it: the machine's connection is also closed,
// and data in transit is lost.
type Tunnel struct {
	io.ReadWriteCloser          // the connection, preceded by data that was read ahead
	conn               net.Conn // the connection itself
	ended              atomic.Bool
}

var _ net.Conn = (*Tunnel)(nil)

// DialTunnel connects to a machine's port with a MachineTunnel request. The tunnel has its own connection to the
// worker, which remains open after ctx is done. Errors: those of [Fabric], and those that the worker reports.
func DialTunnel(ctx context.Context, f Fabric, to bourse.Member, at TunnelRequest) (*Tunnel, error) {
	encoded, err := encodeBody(&at)
	if err != nil {
		return nil, err
	}
	req := MachineTunnel.request(encoded)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", tunnelProtocol)
	t := &Tunnel{}
	trace := httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { t.conn = i.Conn }}
	resp, err := f.Call(httptrace.WithClientTrace(ctx, &trace), to, req)
	if err != nil {
		return nil, err
	}
	both, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok || t.conn == nil {
		defer resp.Body.Close()
		if resp.StatusCode > 299 {
			return nil, readFailure(ctx, to, resp)
		}
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s does not support tunnels over upgraded connections", to.ID)
	}
	t.ReadWriteCloser = both
	return t, nil
}

// asksForTunnel reports whether a request asks to upgrade its connection to a tunnel.
func asksForTunnel(r *http.Request) bool { return r.Header.Get("Upgrade") == tunnelProtocol }

// CloseWrite closes the sending side. Data from the machine can still be read.
func (t *Tunnel) CloseWrite() error {
	t.ended.Store(true)
	return closeWrite(t.conn)
}

// Close ends the connection.
func (t *Tunnel) Close() error {
	if !t.ended.Load() {
		abort(t.conn)
	}
	return t.ReadWriteCloser.Close()
}

// LocalAddr returns the local address of the connection to the worker.
func (t *Tunnel) LocalAddr() net.Addr { return t.conn.LocalAddr() }

// RemoteAddr returns the worker's address.
func (t *Tunnel) RemoteAddr() net.Addr { return t.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t *Tunnel) SetDeadline(at time.Time) error { return t.conn.SetDeadline(at) }

// SetReadDeadline implements net.Conn.
func (t *Tunnel) SetReadDeadline(at time.Time) error { return t.conn.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (t *Tunnel) SetWriteDeadline(at time.Time) error { return t.conn.SetWriteDeadline(at) }

// closeWrite closes the sending side of a connection, or the whole connection if its sending side cannot be closed
// separately.
func closeWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return c.Close()
}

// abort closes a connection abruptly, without the regular TCP and TLS shutdown, so that the other end can tell that it
// was aborted.
func abort(c net.Conn) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	switch c := c.(type) {
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // fails if the connection is closed already
	case interface{ Abort() }:
		c.Abort()
	}
	_ = c.Close() // the connection is no longer used
}
