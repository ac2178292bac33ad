package admission

import (
	"crypto/x509"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// removals contains the servers that were removed from the cluster, and the open connections from
// servers. The zero value is ready to use.
type removals struct {
	mu    sync.Mutex
	at    map[bourse.WorkerID]time.Time        // time of each removal
	conns map[*trackedConn][]*x509.Certificate // the certificates that the client has presented
}

// SetRemoved replaces the list of removed servers. at contains the time of each removal. From then
// on, the certificates of removed servers are refused. Certificates that were issued after the
// removal are accepted, because their servers have joined again. SetRemoved also closes the open
// connections with refused certificates, and returns their number.
func (c *Credentials) SetRemoved(at map[bourse.WorkerID]time.Time) int {
	r := &c.removals
	r.mu.Lock()
	r.at = maps.Clone(at)
	r.mu.Unlock()
	return r.closeIf(func(chain []*x509.Certificate) bool { return r.check(chain[0]) != nil })
}

// closeIf closes the connections for which refused returns true, and returns their number.
func (r *removals) closeIf(refused func(chain []*x509.Certificate) bool) int {
	r.mu.Lock()
	var closing []*trackedConn
	for conn, chain := range r.conns {
		if refused(chain) {
			closing = append(closing, conn)
		}
	}
	r.mu.Unlock()
	for _, conn := range closing {
		conn.Abort()
	}
	return len(closing)
}

// Refused reports whether the cluster's servers would refuse a certificate that the given server
// received now. This is the case until the first whole second after the server's removal, because
// certificates are dated in whole seconds.
func (c *Credentials) Refused(id bourse.WorkerID, now time.Time) bool {
	c.removals.mu.Lock()
	defer c.removals.mu.Unlock()
	at, removed := c.removals.at[id]
	return removed && !now.Truncate(time.Second).After(at)
}

// check returns an error if a certificate was issued to a server before that server was
// removed. The caller must hold the lock. Errors: forbidden.
func (r *removals) check(cert *x509.Certificate) error {
	who, err := IdentityOf(cert)
	if err != nil {
		return err
	}
	if at, removed := r.at[who.ID]; removed && !IssuedAt(cert).After(at) {
		return bourse.Errorf(bourse.CodeForbidden, "%s %s was removed from the cluster at %s", who.Role, who.ID, at.UTC().Format(time.RFC3339))
	}
	return nil
}

// IssuedAt returns the time when a certificate was issued, assuming that it is backdated by skew,
// as Bourse's certificates are. If another program created the certificate without backdating it,
// the result is later than the actual time.
func IssuedAt(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(skew) }

// allow checks the certificate of a connected server. The certificate is the first one in chain. If
// conn is not nil, it is the server's connection, which will be closed once the server or its CA is
// removed.
func (r *removals) allow(chain []*x509.Certificate, conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(chain[0]); err != nil {
		return err
	}
	if t, ok := conn.(*trackedConn); ok && !t.closed {
		if r.conns == nil {
			r.conns = map[*trackedConn][]*x509.Certificate{}
		}
		r.conns[t] = chain
	}
	return nil
}

// Track returns a listener whose connections are closed once the server that made them, or its CA,
// is removed. The listener's TLS configuration must come from c.
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

// trackedConn is an accepted connection. It is in the list of open connections from the
// moment its client's certificate is accepted until it is closed.
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

// Abort closes the connection with a reset, so that the other end reports an error.
func (t *trackedConn) Abort() {
	switch c := t.Conn.(type) {
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // the connection may be closed already
	case interface{ Abort() }:
		c.Abort()
	}
	_ = t.Close() // nobody uses the connection after this
}
