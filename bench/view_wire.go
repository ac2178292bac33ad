package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// countedWire is the network of this host, which counts what its members send:
// payloads of UDP and TCP, so that headers of HTTP are in it.
type countedWire struct {
	*gossiptest.Loopback
	packets, streams, http atomic.Uint64 // bytes; of streams and HTTP both ways, counted once
	client                 *http.Transport
}

func newWire() *countedWire {
	w := &countedWire{Loopback: gossiptest.NewLoopback()}
	w.client = &http.Transport{
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countedConn{c, &w.http}, err
		},
	}
	return w
}

// Close closes idle connections.
func (w *countedWire) Close() {
	w.client.CloseIdleConnections()
	w.Loopback.Close()
}

// Host makes sockets for a member.
func (w *countedWire) Host(number int) (*gossiptest.Host, error) {
	h, err := w.Loopback.Host(number)
	if err != nil {
		return nil, err
	}
	h.Transport, h.Caller = countedTransport{h.Transport, w}, w
	return h, nil
}

// Call sends a request to a member's address.
func (w *countedWire) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	req = req.WithContext(ctx)
	req.URL.Scheme, req.URL.Host, req.Host = "http", to.Address, to.Address
	resp, err := w.client.RoundTrip(req)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "%s cannot be reached: %w", to.ID, err)
	}
	return resp, nil
}

// countedTransport counts packets where they are sent and streams where they
// are dialled.
type countedTransport struct {
	memberlist.Transport
	w *countedWire
}

func (t countedTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	t.w.packets.Add(uint64(len(b)))
	return t.Transport.WriteTo(b, addr)
}

func (t countedTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return countedConn{c, &t.w.streams}, nil
}

type countedConn struct {
	net.Conn
	n *atomic.Uint64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(uint64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(uint64(n))
	return n, err
}
