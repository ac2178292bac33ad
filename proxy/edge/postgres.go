package edge

import (
	"encoding/binary"
	"io"
	"net"

	"github.com/bourse-dev/bourse"
)

// Request codes in the startup messages of the PostgreSQL protocol. Each of these messages is 8
// bytes long and consists of its length and a code.
const (
	pgSSL    = 80877103
	pgGSS    = 80877104
	pgCancel = 80877102
)

// maxPGRequests is the maximum number of requests that a client may send before the TLS handshake. A client may first
// request GSS encryption, which is refused, and then TLS.
const maxPGRequests = 2

// acceptPostgresTLS accepts a PostgreSQL client's request for TLS, and returns the connection for the TLS handshake
// that follows. Newer clients may start the handshake without such a request.
func acceptPostgresTLS(c net.Conn) (net.Conn, error) {
	for range maxPGRequests {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:1]); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read startup message: %w", err)
		}
		if head[0] == 0x16 { // the first byte of a TLS handshake
			return &prefixedConn{Conn: c, prefix: head[:1]}, nil
		}
		if _, err := io.ReadFull(c, head[1:]); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read startup message: %w", err)
		}
		length, code := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
		switch {
		case length == 8 && code == pgSSL:
			_, err := c.Write([]byte{'S'})
			return c, err
		case length == 8 && code == pgGSS:
			if _, err := c.Write([]byte{'N'}); err != nil {
				return nil, err
			}
		case code == pgCancel:
			return nil, bourse.Errorf(bourse.CodeInvalid, "the client sent a cancel request without TLS")
		default:
			pgRefuse(c, "this server requires TLS: use sslmode=require")
			return nil, bourse.Errorf(bourse.CodeInvalid, "the client did not request TLS")
		}
	}
	return nil, bourse.Errorf(bourse.CodeInvalid, "the client repeatedly requested GSS encryption")
}

// pgRefuse sends a fatal error to a PostgreSQL client.
func pgRefuse(c net.Conn, text string) {
	var body []byte
	for _, field := range []string{"SFATAL", "VFATAL", "C08004", "M" + text} {
		// Error code 08004 means that the server rejected the connection.
		body = append(append(body, field...), 0)
	}
	body = append(body, 0)
	message := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(body)))
	_, _ = c.Write(append(message, body...)) // the client may have disconnected
}

// prefixedConn is a connection whose first bytes have already been read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (u *prefixedConn) Read(p []byte) (int, error) {
	if len(u.prefix) > 0 {
		n := copy(p, u.prefix)
		u.prefix = u.prefix[n:]
		return n, nil
	}
	return u.Conn.Read(p)
}

// CloseWrite closes the sending side of the connection.
func (u *prefixedConn) CloseWrite() error { return closeWrite(u.Conn) }

// clientReporter reports errors to a client if the client's protocol supports error messages.
type clientReporter struct {
	conn     net.Conn
	postgres bool
}

// report tells the client that no machine can be reached. It returns false if the client's protocol does not support
// error messages.
func (g *clientReporter) report(err error) bool {
	if !g.postgres {
		return false
	}
	pgRefuse(g.conn, "no machine can be reached: "+bourse.MessageOf(err))
	// This also sends the TLS close_notify alert. Ignore errors, because the client may have disconnected.
	_ = closeWrite(g.conn)
	return true
}
