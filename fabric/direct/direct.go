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
	// dialTimeout is enough for the round trips of TCP and TLS across the
	// world, and less than an order's deadline.
	dialTimeout = 3 * time.Second
	// clientIdle is how long an unused connection is kept. It must be well
	// below serverIdle: a connection that its server closes at the moment of
	// a request costs that request's outcome.
	clientIdle = 60 * time.Second
	// idlePerWorker is how many unused connections are kept to one worker in
	// the clear; with HTTP/2 there is one for all.
	idlePerWorker = 256
	// connsPerWorker is how many connections carry HTTP/2 to one worker. One
	// is enough; the limit keeps a burst of first calls from one handshake
	// each (1000 of them took 3.5 s, and 0.25 s with it).
	connsPerWorker = 4
	// pingAfter and pingTimeout find a vanished host behind a connection of
	// many requests.
	pingAfter, pingTimeout = 5 * time.Second, 3 * time.Second
)

// Fabric is the fabric of HTTP.
type Fabric struct {
	transport *http.Transport
	streams   *http.Transport // of requests whose body goes on while the reply does
	conns     conns           // of calls
	secure    bool
	proof     admission.Proof
}

var _ fabric.Fabric = (*Fabric)(nil)

// Dialer connects to a worker's address, host:port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// TLS returns the configuration for the next connection: the CA of the
// cluster's workers and our own certificate, as admission.Credentials.Client
// does.
type TLS func() *tls.Config

// New makes a fabric that uses HTTP without TLS when config is nil, and HTTP/2
// with TLS otherwise.
func New(config TLS) *Fabric { return NewOver(TCP, config, admission.Proof{}) }

// NewOver is New for addresses that are reached by another dialer than [TCP],
// and for a server that shows the proof of its cluster.
func NewOver(dialer Dialer, config TLS, proof admission.Proof) *Fabric {
	dial := marked(dialer)
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
		return &Fabric{
			transport: t, streams: newStreams(dial, nil), proof: proof,
			conns: conns{dial: dial, proof: proof, peers: map[peerKey]*peer{}},
		}
	}
	t.Protocols.SetHTTP2(true)
	t.MaxConnsPerHost = connsPerWorker
	t.DialTLSContext = secureDialer(dial, config, "h2")
	return &Fabric{
		transport: t, streams: newStreams(dial, config), secure: true, proof: proof,
		conns: conns{dial: dial, config: config, proof: proof, peers: map[peerKey]*peer{}},
	}
}

// newStreams makes the transport of requests whose bodies have no known length, or
// whose connections become something else.
// Each has a connection of its own. On a shared one of HTTP/2 a few megabytes
// that a server does not read would hold up the bodies of all other requests;
// and a kept one may be closed by its server at that very moment, when such a
// request cannot be sent again.
func newStreams(dial Dialer, config TLS) *http.Transport {
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols), DialContext: dial}
	t.Protocols.SetHTTP1(true)
	if config != nil {
		t.DialTLSContext = secureDialer(dial, config, "http/1.1")
	}
	return t
}

// Close closes the connections that no request uses, and those of calls: their
// answers are lost.
func (f *Fabric) Close() {
	f.transport.CloseIdleConnections()
	f.conns.close()
}

// Call sends one request to one worker; see [fabric.Fabric].
func (f *Fabric) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	trip := &trip{to: to}
	trip.trace.GotConn = func(httptrace.GotConnInfo) { trip.begun.Store(true) }
	transport := f.transport
	if req.ContentLength < 0 || req.Header["Upgrade"] != nil {
		transport = f.streams
	}
	resp, err := transport.RoundTrip(f.addressed(httptrace.WithClientTrace(ctx, &trip.trace), to, req))
	if err != nil {
		return nil, trip.failed(ctx, err)
	}
	if resp.StatusCode == http.StatusMisdirectedRequest {
		resp.Body.Close()
		return nil, fabric.Unsent(to, errAnother)
	}
	return resp, nil
}

var errAnother = errors.New("another server has its address")

// addressed returns a copy of req that goes to the worker.
func (f *Fabric) addressed(ctx context.Context, to bourse.Member, req *http.Request) *http.Request {
	r := req.WithContext(ctx)
	r.URL = &url.URL{Scheme: "http", Host: to.Address, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	if f.secure {
		r.URL.Scheme, r.URL.Host = "https", route(to)
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

// trip is what one call has done so far.
type trip struct {
	to    bourse.Member
	trace httptrace.ClientTrace
	begun atomic.Bool // a connection was had: from here on bytes may have left
}

// failed translates an error of the transport to that of the call. Without a connection
// nothing was sent. An error of dialing after one was had means that the
// transport started over, which it does only when nothing was written (or for
// reads, which change nothing).
func (t *trip) failed(ctx context.Context, err error) error {
	if _, dialing := errors.AsType[*dialError](err); dialing || !t.begun.Load() {
		return fabric.Unsent(t.to, err)
	}
	return fabric.Lost(ctx, t.to, err)
}

// dialError marks what went wrong before there was a connection.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, Control: giveUp}

// unheard is how long what was sent may stay without the other host's word that it
// arrived. The kernel would wait a quarter of an hour.
const unheard = 5 * time.Second

// TCP dials addresses of IP.
func TCP(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// marked is a dialer whose errors are dialErrors.
func marked(dialer Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return c, nil
	}
}

// route is how the transport names a worker behind TLS: connections are kept
// by it, so they belong to one worker at one address.
func route(m bourse.Member) string {
	return hex.EncodeToString([]byte(m.Address)) + "." + serverName(m)
}

func serverName(m bourse.Member) string {
	return admission.Identity{ID: m.ID, Role: m.Role}.ServerName()
}

// secureDialer dials a route, to use protocol there: the server at its
// address must prove to be its worker.
func secureDialer(dial Dialer, config TLS, protocol string) Dialer {
	return func(ctx context.Context, network, route string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		host, _, _ := net.SplitHostPort(route) // the transport adds a port
		coded, name, _ := strings.Cut(host, ".")
		address, err := hex.DecodeString(coded)
		if err != nil {
			return nil, &dialError{err}
		}
		c, err := dial(ctx, network, string(address))
		if err != nil {
			return nil, err
		}
		return secured(ctx, c, config, name, protocol)
	}
}

// Certificate connects to a server for no other purpose than that it proves to be
// to, and returns the certificate by which it does.
func (f *Fabric) Certificate(ctx context.Context, to bourse.Member) (*x509.Certificate, error) {
	if !f.secure {
		return nil, fabric.Unsent(to, errClear)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := f.conns.dial(ctx, "tcp", to.Address)
	if err == nil {
		c, err = secured(ctx, c, f.conns.config, serverName(to), "http/1.1")
	}
	if err != nil {
		return nil, fabric.Unsent(to, err)
	}
	_ = c.Close() // nothing was sent that could be lost
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

var errClear = errors.New("servers prove nothing in the clear")

// secured starts TLS on a connection, which it closes when that fails: the
// server must prove that it has the name.
func secured(ctx context.Context, c net.Conn, config TLS, name, protocol string) (net.Conn, error) {
	own := config().Clone()
	own.ServerName = name
	own.NextProtos = []string{protocol}
	secure := tls.Client(c, own)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, &dialError{errors.Join(err, c.Close())}
	}
	return secure, nil
}
