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

// tunnelProtocol is what a connection goes on in that has become a tunnel: the
// bytes of the machine's port and nothing else.
const tunnelProtocol = "bourse-tunnel"

// Tunnel is a connection to a port of a machine, through its worker. Either end
// may end its side alone. Closing it while its own side has not ended breaks it: the
// machine's connection is closed, too, and what was on its way is lost.
type Tunnel struct {
	io.ReadWriteCloser          // of the connection, with what came ahead
	below              net.Conn // the connection
	ended              atomic.Bool
}

var _ net.Conn = (*Tunnel)(nil)

// DialTunnel connects to a port of a machine, as MachineTunnel does. The
// connection is one of its own to the worker, and outlives ctx. Codes: those of
// [Fabric], and those of the worker.
func DialTunnel(ctx context.Context, f Fabric, to bourse.Member, at TunnelRequest) (*Tunnel, error) {
	encoded, err := encodeBody(&at)
	if err != nil {
		return nil, err
	}
	req := MachineTunnel.request(encoded)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", tunnelProtocol)
	t := &Tunnel{}
	trace := httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { t.below = i.Conn }}
	resp, err := f.Call(httptrace.WithClientTrace(ctx, &trace), to, req)
	if err != nil {
		return nil, err
	}
	both, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok || t.below == nil {
		defer resp.Body.Close()
		if resp.StatusCode > 299 {
			return nil, readFailure(ctx, to, resp)
		}
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s has no tunnels of this kind", to.ID)
	}
	t.ReadWriteCloser = both
	return t, nil
}

// asksForTunnel reports whether a request asks that its connection become a
// tunnel.
func asksForTunnel(r *http.Request) bool { return r.Header.Get("Upgrade") == tunnelProtocol }

// CloseWrite ends what is sent. What the machine sends can still be read.
func (t *Tunnel) CloseWrite() error {
	t.ended.Store(true)
	return closeWrite(t.below)
}

// Close ends the connection.
func (t *Tunnel) Close() error {
	if !t.ended.Load() {
		breakOff(t.below)
	}
	return t.ReadWriteCloser.Close()
}

// LocalAddr returns our end of the connection to the worker.
func (t *Tunnel) LocalAddr() net.Addr { return t.below.LocalAddr() }

// RemoteAddr returns the worker's end of it.
func (t *Tunnel) RemoteAddr() net.Addr { return t.below.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t *Tunnel) SetDeadline(at time.Time) error { return t.below.SetDeadline(at) }

// SetReadDeadline implements net.Conn.
func (t *Tunnel) SetReadDeadline(at time.Time) error { return t.below.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (t *Tunnel) SetWriteDeadline(at time.Time) error { return t.below.SetWriteDeadline(at) }

// closeWrite ends the sending side of a connection; one that cannot do so ends
// altogether.
func closeWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return c.Close()
}

// breakOff closes a connection so that the other end sees that it was not its
// end: nothing says goodbye, TLS neither.
func breakOff(c net.Conn) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	switch c := c.(type) {
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // of one that is closed already
	case interface{ Abort() }:
		c.Abort()
	}
	_ = c.Close() // nothing more is expected of it
}
