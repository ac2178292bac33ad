package admission

import (
	"crypto/x509"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// removals contains the servers that were removed from the cluster, and the open
// connections that other servers have made. The zero value is ready to use.
type removals struct {
	mu    sync.Mutex
	at    map[bourse.WorkerID]time.Time // time of each removal
	conns map[*trackedConn]*x509.Certificate
}

// SetRemoved replaces the list of removed servers, with the time of each removal. Their
// certificates are refused from now on, and the connections that they have made with them
// are closed. A certificate that was issued after the removal is accepted: its server has
// joined again. SetRemoved returns the number of connections that it has closed.
func (c *Credentials) SetRemoved(at map[bourse.WorkerID]time.Time) int {
	r := &c.removals
	r.mu.Lock()
	r.at = maps.Clone(at)
	var refused []*trackedConn
	for conn, cert := range r.conns {
		if r.check(cert) != nil {
			refused = append(refused, conn)
		}
	}
	r.mu.Unlock()
	for _, conn := range refused {
		conn.Abort()
	}
	return len(refused)
}

// check returns an error if a certificate was issued to a server before that server was
// removed. The lock is held. Errors: forbidden.
func (r *removals) check(cert *x509.Certificate) error {
	who, err := IdentityOf(cert)
	if err != nil {
		return err
	}
	// A certificate is dated back. One from another program counts as issued later than it
	// was, by that time.
	if at, removed := r.at[who.ID]; removed && !cert.NotBefore.Add(skew).After(at) {
		return bourse.Errorf(bourse.CodeForbidden, "%s %s was removed from the cluster at %s", who.Role, who.ID, at.UTC().Format(time.RFC3339))
	}
	return nil
}

// allow checks the certificate of a connected server. If it came from conn, which may be
// nil, the connection is closed when the server is removed.
func (r *removals) allow(cert *x509.Certificate, conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(cert); err != nil {
		return err
	}
	if t, ok := conn.(*trackedConn); ok && !t.closed {
		if r.conns == nil {
			r.conns = map[*trackedConn]*x509.Certificate{}
		}
		r.conns[t] = cert
	}
	return nil
}

// Track returns a listener whose connections are closed when the servers that made them are
// removed from the cluster. The listener's TLS configuration must come from c.
func (c *Credentials) Track(ln net.Listener) net.Listener {
	return &trackingListener{ln, &c.removals}
}

type trackingListener struct {
	net.Listener
	of *removals
}

// Accept implements net.Listener.
func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trackedConn{Conn: conn, of: l.of}, nil
}

// trackedConn is a connection that is in the list of open connections once its client's
// certificate was accepted.
type trackedConn struct {
	net.Conn
	of     *removals
	closed bool // guarded by of.mu
}

// Close implements net.Conn.
func (t *trackedConn) Close() error {
	t.of.mu.Lock()
	t.closed = true
	delete(t.of.conns, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// Abort closes the connection so that the other end notices that this was no regular end.
func (t *trackedConn) Abort() {
	switch c := t.Conn.(type) {
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // the connection may be closed already
	case interface{ Abort() }:
		c.Abort()
	}
	_ = t.Close() // the connection is not used again
}
