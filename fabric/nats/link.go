package nats

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
)

// Link is a server's connection to NATS, and its address there. It is safe for
// concurrent use.
//
// One goroutine of the client library passes it all messages, in the order in
// which they came; nothing that it calls blocks. Locks: mu guards the maps;
// a Conn has one of its own, and one for sending. None is taken while mu is
// held.
type Link struct {
	Counters

	config Config
	nats   *client.Conn
	own    Address
	base   string // of all subjects: prefix and cluster, with a dot
	home   string // of those that are ours
	ended  chan struct{}
	work   sync.WaitGroup // of orders that are being answered, and the watch

	findable sync.Once

	mu sync.Mutex
	tables
}

// tables are the receivers of messages.
type tables struct {
	conns     map[string]*Conn // by the last token of their subject
	listeners map[uint16]*listener
	asks      map[string]*asked
	seen      map[Address]time.Time // when the other ends of connections sent the last sign of life
	packets   func(from Address, data []byte)
	serves    *offer
	closed    bool
}

// Counters is what a link has seen since it was opened.
type Counters struct {
	Reconnects    atomic.Int64 // of this process to NATS
	SlowConsumers atomic.Int64 // times that this process was too slow
	Oversized     atomic.Int64 // messages too large to be sent, or to be taken
	Malformed     atomic.Int64 // messages that make no sense
	Resets        atomic.Int64 // connections that were reset
	Dropped       atomic.Int64 // orders for which there was no free goroutine
}

// Counts is what Counters had at one moment.
type Counts struct{ Reconnects, SlowConsumers, Oversized, Malformed, Resets, Dropped int64 }

// Counts reads the counters.
func (c *Counters) Counts() Counts {
	return Counts{
		Reconnects: c.Reconnects.Load(), SlowConsumers: c.SlowConsumers.Load(), Oversized: c.Oversized.Load(),
		Malformed: c.Malformed.Load(), Resets: c.Resets.Load(), Dropped: c.Dropped.Load(),
	}
}

// startPatience is how long Open waits for NATS. After that the link is
// there, and waits on.
const startPatience = 3 * time.Second

// Open connects to NATS. When no server answers for a while, the link is returned
// all the same and goes on trying. CodeInvalid means the config,
// CodeUnauthorized that NATS does not let us in.
func Open(ctx context.Context, c Config) (*Link, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Link{
		config: c, own: newAddress(), base: c.Prefix + "." + c.Cluster + ".", ended: make(chan struct{}),
		tables: tables{conns: map[string]*Conn{}, listeners: map[uint16]*listener{}, asks: map[string]*asked{}, seen: map[Address]time.Time{}},
	}
	l.home = l.at(l.own)
	options, err := c.options(l)
	if err != nil {
		return nil, err
	}
	connected := make(chan struct{}, 1)
	options = append(options, client.ConnectHandler(func(*client.Conn) { connected <- struct{}{} }))
	if l.nats, err = client.Connect(c.servers(), options...); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "NATS at %s: %w", c.safeServers(), err)
	}
	if _, err := l.subscribe(l.home+">", l.take); err != nil {
		l.nats.Close()
		return nil, err
	}
	select {
	case <-connected:
		if err := l.nats.FlushTimeout(startPatience); err != nil { // others can reach us from now on
			c.Log.Warn("NATS answers slowly", "err", err)
		}
	case <-time.After(startPatience):
		if err := l.nats.LastError(); errors.Is(err, client.ErrAuthorization) {
			l.nats.Close()
			return nil, bourse.Errorf(bourse.CodeUnauthorized, "NATS at %s does not let us in: %w", c.safeServers(), err)
		}
		c.Log.Warn("no NATS server answers yet", "servers", c.safeServers(), "err", l.nats.LastError())
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

// at returns the prefix of the subjects of an address.
func (l *Link) at(a Address) string { return l.base + "at." + token(a) + "." }

// Place returns the host:port at which others reach a port of this link.
func (l *Link) Place(port uint16) string { return place(l.own, port) }

// Up reports whether there is a NATS server now.
func (l *Link) Up() bool { return l.nats.IsConnected() }

const lastWords = time.Second // to flush

// Close takes no more orders and connections, resets those that are open,
// sends what is still to be sent, and leaves.
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
	l.resetAll("the other end is closing", true)
	l.work.Wait()
	if l.nats.IsConnected() {
		_ = l.nats.FlushTimeout(lastWords) // it may be gone
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
	what, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.home), ".")
	switch what {
	case "c":
		l.takeFrame(rest, m)
	case "packet":
		l.takePacket(m)
	case "ask":
		l.takeAsk(m)
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

// noResponder reports whether m is NATS's message that a subject has no subscriber.
func noResponder(m *client.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

func (l *Link) takeFrame(name string, m *client.Msg) {
	l.mu.Lock()
	c := l.conns[name]
	if c != nil {
		l.sawPeer(c.peer)
	}
	l.mu.Unlock()
	switch {
	case c != nil && noResponder(m):
		c.end(errGone)
	case c != nil:
		f, err := parseFrame(m.Data)
		if err != nil {
			l.Malformed.Add(1)
			c.reset(err)
			return
		}
		c.receive(f)
	case m.Reply != "" && !noResponder(m):
		if f, err := parseFrame(m.Data); err == nil && f.kind != kindReset && f.kind != kindCredit && f.kind != kindEnd {
			_ = l.nats.Publish(m.Reply, (&frame{kind: kindReset, data: []byte("there is no such connection")}).append(nil))
		}
	}
}

// send publishes one message.
func (l *Link) send(to, reply string, data []byte) error {
	return l.sent(l.nats.PublishRequest(to, reply, data))
}

// sent counts and translates an error of sending.
func (l *Link) sent(err error) error {
	switch {
	case errors.Is(err, client.ErrMaxPayload):
		l.Oversized.Add(1)
	case errors.Is(err, client.ErrReconnectBufExceeded): // there is none: see options
		return errDown
	}
	return err
}

var (
	errGone  = errors.New("the other end is gone")
	errDown  = errors.New("there is no connection to NATS")
	errSlow  = errors.New("messages were lost: this process was too slow")
	errLost  = errors.New("messages were lost on the way")
	errQuiet = errors.New("the other end sends no sign of life")
)

func (l *Link) disconnected(_ *client.Conn, err error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return
	}
	l.config.Log.Warn("connection to NATS lost", "err", err)
	l.resetAll(errDown.Error(), false)
}

func (l *Link) reconnected(c *client.Conn) {
	l.Reconnects.Add(1)
	l.config.Log.Info("connected to NATS again", "server", c.ConnectedAddr())
}

// asyncError handles an error of the background.
func (l *Link) asyncError(_ *client.Conn, _ *client.Subscription, err error) {
	if errors.Is(err, client.ErrSlowConsumer) {
		l.SlowConsumers.Add(1)
		l.resetAll(errSlow.Error(), true)
	}
	l.config.Log.Warn("NATS reports an error", "err", err)
}

// resetAll ends all connections, and notifies the other ends if that can be
// done.
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
