package direct

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
)

const (
	// dialTimeout is long enough for TCP and TLS handshakes between the most distant regions, but shorter than an
	// order's deadline.
	dialTimeout = 3 * time.Second
	// clientIdle is how long an unused connection is kept open. It must be well below serverIdle: if the server closed
	// a connection while a request was being sent, the request's outcome would be unknown.
	clientIdle = 60 * time.Second
	// idlePerWorker is the maximum number of unused plain-text connections per worker.
	// HTTP/2 needs only one connection.
	idlePerWorker = 256
	// connsPerWorker is the maximum number of HTTP/2 connections per worker. A single connection would be enough for
	// all calls, but without a limit, each of many simultaneous first calls would open its own connection and perform a
	// handshake. The limit reduced the time for 1000 such calls from 3.5 s to 0.25 s.
	connsPerWorker = 4
	// A shared connection is pinged after pingAfter of silence, and is closed if no answer arrives
	// within pingTimeout. This detects that the other host has disappeared.
	pingAfter, pingTimeout = 5 * time.Second, 3 * time.Second
)

// Fabric implements [fabric.Fabric] over HTTP.
type Fabric struct {
	dial      Dialer
	config    TLS                            // nil for plain text
	transport atomic.Pointer[http.Transport] // for all requests that do not use streams
	streams   *http.Transport                // for requests whose body is sent while the reply is received, and for upgrades
	conns     conns                          // connections for calls
	proof     admission.Proof
}

var _ fabric.Fabric = (*Fabric)(nil)

// Dialer connects to a worker's address, which has the form host:port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// TLS returns the TLS configuration for the next connection. It contains the cluster's CA and this server's
// certificate; see admission.Credentials.Client.
type TLS func() *tls.Config

// New returns a fabric that uses plain HTTP if config is nil, and HTTP/2 with TLS otherwise.
func New(config TLS) *Fabric { return NewOver(TCP, config, admission.Proof{}) }

// NewOver is like New, but uses the given dialer instead of [TCP], and sends the given proof of this server's identity
// to other servers.
func NewOver(dialer Dialer, config TLS, proof admission.Proof) *Fabric {
	dial := wrapDialErrors(dialer)
	f := &Fabric{
		dial: dial, config: config, streams: newStreams(dial, config), proof: proof,
		conns: conns{dial: dial, config: config, proof: proof, peers: map[peerKey]*peer{}},
	}
	f.transport.Store(newTransport(dial, config))
	return f
}

func newTransport(dial Dialer, config TLS) *http.Transport {
	t := &http.Transport{
		MaxIdleConnsPerHost: idlePerWorker,
		IdleConnTimeout:     clientIdle,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DialContext:         dial,
	}
	if config == nil {
		t.Protocols.SetHTTP1(true)
		return t
	}
	t.Protocols.SetHTTP2(true)
	t.MaxConnsPerHost = connsPerWorker
	t.DialTLSContext = secureDialer(dial, config, "h2")
	return t
}

// Renew makes later calls and requests use new connections, because this server's certificate has
// changed. Calls and requests in progress finish on their current connections, which then close.
func (f *Fabric) Renew() {
	f.transport.Swap(newTransport(f.dial, f.config)).CloseIdleConnections()
	f.conns.drain()
}

// newStreams returns the transport for upgrades and for requests whose bodies have no known length. Each of these
// gets its own connection: on a shared HTTP/2 connection, a few megabytes that a server does not read would block the
// bodies of all other requests. Connections are not reused, because the server might already be closing them, and
// these requests cannot be repeated.
func newStreams(dial Dialer, config TLS) *http.Transport {
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols), DialContext: dial}
	t.Protocols.SetHTTP1(true)
	if config != nil {
		t.DialTLSContext = secureDialer(dial, config, "http/1.1")
	}
	return t
}

// Close closes unused connections and the connections for calls. The answers to calls in progress are lost.
func (f *Fabric) Close() {
	f.transport.Load().CloseIdleConnections()
	f.conns.close()
}

// Call implements [fabric.Fabric].
func (f *Fabric) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	trip := &callTrace{to: to}
	trip.trace.GotConn = func(httptrace.GotConnInfo) { trip.connected.Store(true) }
	transport := f.transport.Load()
	if req.ContentLength < 0 || req.Header["Upgrade"] != nil {
		transport = f.streams
	}
	resp, err := transport.RoundTrip(f.addressed(httptrace.WithClientTrace(ctx, &trip.trace), to, req))
	if err != nil {
		return nil, trip.failed(ctx, err)
	}
	if resp.StatusCode == http.StatusMisdirectedRequest {
		resp.Body.Close()
		return nil, fabric.Unsent(to, errWrongServer)
	}
	return resp, nil
}

var errWrongServer = errors.New("another server has this address")

// addressed returns a copy of req that is addressed to the worker.
func (f *Fabric) addressed(ctx context.Context, to bourse.Member, req *http.Request) *http.Request {
	r := req.WithContext(ctx)
	r.URL = &url.URL{Scheme: "http", Host: to.Address, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	if f.config != nil {
		r.URL.Scheme, r.URL.Host = "https", poolHost(to)
	}
	r.Host = to.Address
	r.Header = maps.Clone(req.Header)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header[headerTo] = []string{string(to.ID)}
	f.proof.ShowTo(r.Header, to.Address)
	return r
}

// callTrace records the progress of a call.
type callTrace struct {
	to        bourse.Member
	trace     httptrace.ClientTrace
	connected atomic.Bool // whether a connection was established, so part of the request may have been sent
}

// failed converts the transport's error to an error from fabric.Unsent or fabric.Lost. The request was not sent if no
// connection was established, or if the transport's last attempt to dial failed: after losing a connection, the
// transport dials again only if nothing was written to the lost connection. (The transport may also dial again after
// writing a read-only request, but sending such a request twice is harmless.)
func (t *callTrace) failed(ctx context.Context, err error) error {
	if _, dialing := errors.AsType[*dialError](err); dialing || !t.connected.Load() {
		return fabric.Unsent(t.to, err)
	}
	return fabric.Lost(ctx, t.to, err)
}

// dialError marks an error that occurred before a connection was established.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, Control: setAckTimeout}

// ackTimeout is how long sent data may remain unacknowledged by the other host. The kernel's own
// limit is about a quarter of an hour.
const ackTimeout = 5 * time.Second

// TCP dials an address of the form host:port, whose host is an IP address.
func TCP(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// wrapDialErrors returns a dialer that wraps the errors of the given dialer in dialError.
func wrapDialErrors(dialer Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return c, nil
	}
}

// poolHost returns the host name that represents a worker in requests over TLS. The transport pools connections by this
// name, so each connection belongs to one worker at one address.
func poolHost(m bourse.Member) string {
	return hex.EncodeToString([]byte(m.Address)) + "." + serverName(m)
}

func serverName(m bourse.Member) string {
	return admission.Identity{ID: m.ID, Role: m.Role}.ServerName()
}

// secureDialer returns a dialer for addresses returned by poolHost. Its connections use the given ALPN protocol. The
// server at an address must prove that it is the worker named in the address.
func secureDialer(dial Dialer, config TLS, protocol string) Dialer {
	return func(ctx context.Context, network, route string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		host, _, _ := net.SplitHostPort(route) // remove the port that the transport has appended
		coded, name, _ := strings.Cut(host, ".")
		address, err := hex.DecodeString(coded)
		if err != nil {
			return nil, &dialError{err}
		}
		c, err := dial(ctx, network, string(address))
		if err != nil {
			return nil, err
		}
		return handshake(ctx, c, config, name, protocol)
	}
}

// Certificate connects to a server only to verify that it is the given member. It returns
// the certificate that the server presented.
func (f *Fabric) Certificate(ctx context.Context, to bourse.Member) (*x509.Certificate, error) {
	if f.config == nil {
		return nil, fabric.Unsent(to, errNoTLS)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := f.dial(ctx, "tcp", to.Address)
	if err == nil {
		c, err = handshake(ctx, c, f.config, serverName(to), "http/1.1")
	}
	if err != nil {
		return nil, fabric.Unsent(to, err)
	}
	_ = c.Close() // ignore the error, because nothing was sent
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

var errNoTLS = errors.New("servers cannot prove their identity without TLS")

// handshake performs a TLS handshake in which the server must prove that it has the given name. If the handshake fails,
// the connection is closed.
func handshake(ctx context.Context, c net.Conn, config TLS, name, protocol string) (net.Conn, error) {
	own := config().Clone()
	own.ServerName = name
	own.NextProtos = []string{protocol}
	secure := tls.Client(c, own)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, &dialError{errors.Join(err, c.Close())}
	}
	return secure, nil
}
