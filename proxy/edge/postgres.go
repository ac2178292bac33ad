package edge

import (
	"encoding/binary"
	"io"
	"net"

	"github.com/bourse-dev/bourse"
)

// Requests that PostgreSQL's clients begin with, each 8 bytes: its length and one of
// these.
const (
	pgSSL    = 80877103
	pgGSS    = 80877104
	pgCancel = 80877102
)

// pgGreetings is how many requests a client may make before TLS: for GSS encryption,
// which is refused, then for TLS.
const maxPGRequests = 2

// askPostgres answers a client of PostgreSQL that asks for TLS, and returns the
// connection on which its handshake follows. One that begins with the handshake, as
// newer clients may, is passed on as it is.
func acceptPostgresTLS(c net.Conn) (net.Conn, error) {
	for range maxPGRequests {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:1]); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read what the client asks for: %w", err)
		}
		if head[0] == 0x16 { // a TLS handshake
			return &prefixedConn{Conn: c, prefix: head[:1]}, nil
		}
		if _, err := io.ReadFull(c, head[1:]); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read what the client asks for: %w", err)
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
			return nil, bourse.Errorf(bourse.CodeInvalid, "the client asks to cancel a query without TLS")
		default:
			pgRefuse(c, "this server is reached with TLS only: use sslmode=require")
			return nil, bourse.Errorf(bourse.CodeInvalid, "the client does not ask for TLS")
		}
	}
	return nil, bourse.Errorf(bourse.CodeInvalid, "the client asks for GSS encryption again and again")
}

// pgRefuse sends a client of PostgreSQL the error that ends its connection.
func pgRefuse(c net.Conn, text string) {
	var body []byte
	for _, field := range []string{"SFATAL", "VFATAL", "C08004", "M" + text} { // 08004: the server rejected the connection
		body = append(append(body, field...), 0)
	}
	body = append(body, 0)
	message := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(body)))
	_, _ = c.Write(append(message, body...)) // the client may have left
}

// unread is a connection of which a few bytes were read too many.
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

// CloseWrite ends what is sent.
func (u *prefixedConn) CloseWrite() error { return closeWrite(u.Conn) }

// greeter tells a client why it is not served, where its protocol has words for that.
type clientReporter struct {
	conn     net.Conn
	postgres bool
}

// refuse says that there is no machine, and reports whether it had words for that.
func (g *clientReporter) report(err error) bool {
	if !g.postgres {
		return false
	}
	pgRefuse(g.conn, "no machine can be reached: "+bourse.MessageOf(err))
	_ = closeWrite(g.conn) // that is all, in TLS's words; the client may have left
	return true
}
