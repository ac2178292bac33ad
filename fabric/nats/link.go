package nats

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
)

// Link is a server's connection to NATS and its address there. It is safe for concurrent use.
//
// One goroutine of the client library delivers all messages in order of arrival. The functions that it calls must not
// block. Locks: mu guards the maps. Each Conn has its own lock, and another one for sending. No other lock is acquired
// while mu is held.
type Link struct {
	Counters

	config    Config
	nats      *client.Conn
	own       Address
	base      string // prefix of all subjects, with the cluster's name and a trailing dot
	ownPrefix string // prefix of the subjects that this server receives
	ended     chan struct{}
	work      sync.WaitGroup // watch, and the goroutines that answer orders

	answerFinds sync.Once

	mu sync.Mutex
	tables
}

// tables contains the connections, listeners and other receivers of incoming messages.
type tables struct {
	conns     map[string]*Conn // by the last token of their subjects
	listeners map[uint16]*listener
	asks      map[string]*pendingAsk
	lastSeen  map[Address]time.Time // when each watched address was last known to be alive
	packets   func(from Address, data []byte)
	serves    *subscription
	closed    bool
}

// Counters counts events since the link was opened.
type Counters struct {
	Reconnects    atomic.Int64 // reconnections to NATS
	SlowConsumers atomic.Int64 // how often this process was too slow to receive messages
	Oversized     atomic.Int64 // messages that were too large to send or receive
	Malformed     atomic.Int64 // invalid messages
	Resets        atomic.Int64 // connections that were reset
	Dropped       atomic.Int64 // orders dropped because no goroutine was free
}

// Counts is a snapshot of Counters.
type Counts struct{ Reconnects, SlowConsumers, Oversized, Malformed, Resets, Dropped int64 }

// Counts returns the counters' current values.
func (c *Counters) Counts() Counts {
	return Counts{
		Reconnects: c.Reconnects.Load(), SlowConsumers: c.SlowConsumers.Load(), Oversized: c.Oversized.Load(),
		Malformed: c.Malformed.Load(), Resets: c.Resets.Load(), Dropped: c.Dropped.Load(),
	}
}

// startTimeout is how long Open waits for a connection to NATS. After that, the link keeps trying in the background.
const startTimeout = 3 * time.Second

// Open connects to NATS. If no server answers in time, Open still returns the link, which keeps trying. Errors: invalid
// for an invalid configuration; unauthorized if NATS rejects the credentials.
func Open(ctx context.Context, c Config) (*Link, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Link{
		config: c, own: newAddress(), base: "bourse." + c.Cluster + ".", ended: make(chan struct{}),
		tables: tables{conns: map[string]*Conn{}, listeners: map[uint16]*listener{}, asks: map[string]*pendingAsk{}, lastSeen: map[Address]time.Time{}},
	}
	l.ownPrefix = l.prefixOf(l.own)
	options, err := c.options(l)
	if err != nil {
		return nil, err
	}
	connected := make(chan struct{}, 1)
	options = append(options, client.ConnectHandler(func(*client.Conn) { connected <- struct{}{} }))
	if l.nats, err = client.Connect(c.servers(), options...); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "NATS at %s: %w", c.safeServers(), err)
	}
	if _, err := l.subscribe(l.ownPrefix+">", l.take); err != nil {
		l.nats.Close()
		return nil, err
	}
	select {
	case <-connected:
		if err := l.nats.FlushTimeout(startTimeout); err != nil { // once this has succeeded, other servers can reach the link
			c.Log.Warn("NATS is slow", "err", err)
		}
	case <-time.After(startTimeout):
		if err := l.nats.LastError(); errors.Is(err, client.ErrAuthorization) {
			l.nats.Close()
			return nil, bourse.Errorf(bourse.CodeUnauthorized, "NATS at %s rejected the credentials: %w", c.safeServers(), err)
		}
		c.Log.Warn("no NATS server has answered yet", "servers", c.safeServers(), "err", l.nats.LastError())
	case <-ctx.Done():
		l.nats.Close()
		return nil, ctx.Err()
	}
	l.work.Go(l.watch)
	return l, nil
}

func (c *Config) safeServers() string {
	var out []string
	for _, u := range c.URLs {
		_, host, found := strings.Cut(u, "@")
		if !found {
			_, host, _ = strings.Cut(u, "://")
		}
		out = append(out, host)
	}
	return strings.Join(out, ",")
}

// prefixOf returns the prefix of an address's subjects.
func (l *Link) prefixOf(a Address) string { return l.base + "at." + token(a) + "." }

// HostPort returns the host:port that other servers use to reach a port of this link.
func (l *Link) HostPort(port uint16) string { return hostPort(l.own, port) }

// Certificates returns the NATS server's certificate and the certificates of its issuers. It
// returns nil if the link has no TLS connection.
func (l *Link) Certificates() []*x509.Certificate {
	state, err := l.nats.TLSConnectionState()
	if err != nil {
		return nil
	}
	return state.PeerCertificates
}

// Connected reports whether the link is connected to a NATS server.
func (l *Link) Connected() bool { return l.nats.IsConnected() }

const flushTimeout = time.Second // time limit for flushing pending messages

// Close stops accepting orders and connections, resets open connections, flushes pending
// messages, and disconnects.
func (l *Link) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	listeners := l.listeners
	l.listeners = map[uint16]*listener{}
	l.mu.Unlock()
	close(l.ended)
	for _, n := range listeners {
		_ = n.Close()
	}
	l.resetAll("the other end is shutting down", true)
	l.work.Wait()
	if l.nats.IsConnected() {
		_ = l.nats.FlushTimeout(flushTimeout) // fails if NATS cannot be reached
	}
	l.nats.Close()
}

func (l *Link) subscribe(subject string, take func(*client.Msg)) (*client.Subscription, error) {
	sub, err := l.nats.Subscribe(subject, take)
	if err == nil {
		err = sub.SetPendingLimits(-1, pendingBytes)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// take passes a message to its receiver.
func (l *Link) take(m *client.Msg) {
	what, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.ownPrefix), ".")
	switch what {
	case "c":
		l.takeFrame(rest, m)
	case "packet":
		l.takePacket(m)
	case "ask":
		l.answerOrder(m)
	case "quote":
		l.takeQuote(rest, m)
	case "dial":
		l.takeDial(rest, m)
	case "ping":
		l.takePing(rest, m)
	default:
		l.Malformed.Add(1)
	}
}

// isNoResponders reports whether m is NATS's notification that a message had no recipient.
func isNoResponders(m *client.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

func (l *Link) takeFrame(name string, m *client.Msg) {
	l.mu.Lock()
	c := l.conns[name]
	if c != nil {
		l.noteAlive(c.peer)
	}
	l.mu.Unlock()
	switch {
	case c != nil && isNoResponders(m):
		c.end(errPeerGone)
	case c != nil:
		f, err := parseFrame(m.Data)
		if err != nil {
			l.Malformed.Add(1)
			c.reset(err)
			return
		}
		c.receive(f)
	case m.Reply != "" && !isNoResponders(m):
		if f, err := parseFrame(m.Data); err == nil && f.kind != kindReset && f.kind != kindCredit && f.kind != kindEnd {
			_ = l.nats.Publish(m.Reply, (&frame{kind: kindReset, data: []byte("no such connection")}).append(nil))
		}
	}
}

// send publishes one message.
func (l *Link) send(to, reply string, data []byte) error {
	return l.publishError(l.nats.PublishRequest(to, reply, data))
}

// publishError translates the client library's error for a message that could not be sent, and counts the messages that
// were too large.
func (l *Link) publishError(err error) error {
	switch {
	case errors.Is(err, client.ErrMaxPayload):
		l.Oversized.Add(1)
	case errors.Is(err, client.ErrReconnectBufExceeded): // the link is not connected to NATS; see options
		return errNotConnected
	}
	return err
}

var (
	errPeerGone     = errors.New("the other end is gone")
	errNotConnected = errors.New("not connected to NATS")
	errSlowConsumer = errors.New("messages were lost because the receiver was too slow")
	errLost         = errors.New("messages were lost in transit")
	errPeerSilent   = errors.New("the other end stopped responding")
)

func (l *Link) disconnected(_ *client.Conn, err error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return
	}
	l.config.Log.Warn("connection to NATS lost", "err", err)
	l.resetAll(errNotConnected.Error(), false)
}

func (l *Link) reconnected(c *client.Conn) {
	l.Reconnects.Add(1)
	l.config.Log.Info("reconnected to NATS", "server", c.ConnectedAddr())
}

// asyncError handles errors that the client library reports asynchronously.
func (l *Link) asyncError(_ *client.Conn, _ *client.Subscription, err error) {
	if errors.Is(err, client.ErrSlowConsumer) {
		l.SlowConsumers.Add(1)
		l.resetAll(errSlowConsumer.Error(), true)
	}
	l.config.Log.Warn("NATS reported an error", "err", err)
}

// resetAll ends all connections. If notify is true, it notifies the other ends.
func (l *Link) resetAll(reason string, notify bool) {
	l.mu.Lock()
	all := make([]*Conn, 0, len(l.conns))
	for _, c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		if notify {
			c.reset(errors.New(reason))
		} else {
			c.end(errors.New(reason))
		}
	}
}
