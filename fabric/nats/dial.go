package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
)

// dialTimeout is how long the other end may take to accept a connection.
const dialTimeout = 3 * time.Second

// Dial connects to hostport, an address and port on this network. If there is no server at the address, Dial fails
// after one round trip to NATS.
func (l *Link) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	to, port, ok := parseHostPort(hostport)
	if !ok {
		return nil, fmt.Errorf("dial %s: %w", hostport, errNoAddress)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	id := rand.Text()
	c, err := l.newConn("d"+id, l.prefixOf(to)+"c.a"+id, to, 0, port)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, c.wake)()
	err = c.send(frame{kind: kindOpen, from: l.own, window: uint32(c.window)}, l.prefixOf(to)+"dial."+strconv.Itoa(int(port)))
	if err != nil {
		c.end(errNotConnected)
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	if err := c.opening(ctx); err != nil {
		c.reset(net.ErrClosed)
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	return c, nil
}

// opening waits until the other end accepts or refuses the connection.
func (c *Conn) opening(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.opened && c.err == nil && ctx.Err() == nil {
		c.changed.Wait()
	}
	if c.err != nil {
		return c.err
	}
	if !c.opened {
		return ctx.Err()
	}
	return nil
}

// backlog is the maximum number of connections per port that are waiting to be accepted.
const backlog = 1024

// listener listens on one port of a link.
type listener struct {
	link  *Link
	port  uint16
	conns chan net.Conn
	ended chan struct{}
}

// Listen listens on a port. Each port of a link must have at most one listener.
func (l *Link) Listen(port uint16) net.Listener {
	n := &listener{link: l, port: port, conns: make(chan net.Conn, backlog), ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[port] = n
	return n
}

// Accept implements net.Listener.
func (n *listener) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *listener) Close() error {
	n.link.mu.Lock()
	open := !closed(n.ended)
	if n.link.listeners[n.port] == n {
		delete(n.link.listeners, n.port)
	}
	if open {
		close(n.ended)
	}
	n.link.mu.Unlock()
	if !open {
		return net.ErrClosed
	}
	for {
		select {
		case c := <-n.conns:
			_ = c.Close()
		default:
			return nil
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Addr implements net.Listener.
func (n *listener) Addr() net.Addr { return tcpAddr(n.link.own, n.port) }

// takeDial handles another server's request for a connection.
func (l *Link) takeDial(text string, m *client.Msg) {
	port, err := strconv.ParseUint(text, 10, 16)
	f, bad := parseFrame(m.Data)
	id, mine := strings.CutPrefix(m.Reply, l.prefixOf(f.from)+"c.d")
	if err != nil || bad != nil || f.kind != kindOpen || !mine || id == "" || strings.ContainsAny(id, ".*> ") || f.window == 0 {
		l.Malformed.Add(1)
		return
	}
	l.mu.Lock()
	n := l.listeners[uint16(port)]
	l.mu.Unlock()
	if n == nil {
		l.refuse(m.Reply, "connection refused")
		return
	}
	c, err := l.newConn("a"+id, m.Reply, f.from, uint16(port), 0)
	if err != nil {
		l.refuse(m.Reply, err.Error())
		return
	}
	c.mu.Lock() // does not block, because nobody else uses the connection yet: its frames arrive after this message
	c.opened, c.credit, c.expected = true, int(min(f.window, 1<<30)), 1
	c.mu.Unlock()
	if c.send(frame{kind: kindAccept, window: uint32(c.window)}, c.to) != nil {
		c.end(errNotConnected)
		return
	}
	select {
	case n.conns <- c:
	default:
		c.reset(errors.New("too many connections are waiting to be accepted"))
	}
}

// refuse rejects a connection attempt, and sends the reason to the dialer.
func (l *Link) refuse(to, reason string) {
	_ = l.nats.Publish(to, (&frame{kind: kindReset, data: []byte(reason)}).append(nil)) // if this fails, the dialer's attempt times out
}
