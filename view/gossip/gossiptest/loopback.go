package gossiptest

import (
	"context"
	"io"
	"log" //nolint:depguard // memberlist's transport requires a *log.Logger
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// Loopback is a Network that uses the loopback interface. Each member has its own sockets.
type Loopback struct{ transport *http.Transport }

// NewLoopback returns a Loopback.
func NewLoopback() *Loopback {
	return &Loopback{&http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second}}
}

// Close closes idle connections.
func (l *Loopback) Close() { l.transport.CloseIdleConnections() }

// Host creates the sockets of a new member. It ignores the member's number.
func (l *Loopback) Host(int) (*Host, error) {
	tr, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"}, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		_ = tr.Shutdown()
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	started := false
	return &Host{
		Transport: tr,
		Advertise: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(tr.GetAutoBindPort())),
		API:       listener.Addr().String(),
		Caller:    l,
		Serve: func(h http.Handler) {
			server.Handler, started = h, true
			go func() {
				defer close(served)
				_ = server.Serve(listener) // returns when the server is closed
			}()
		},
		Kill: func() { _ = tr.Shutdown() },
		Close: func() {
			_, _ = server.Close(), listener.Close()
			if started {
				<-served
			}
		},
	}, nil
}

// Call sends a request to the API address of a member.
func (l *Loopback) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	req = req.WithContext(ctx)
	req.URL.Scheme, req.URL.Host, req.Host = "http", to.Address, to.Address
	resp, err := l.transport.RoundTrip(req)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "%s cannot be reached: %w", to.ID, err)
	}
	return resp, nil
}
