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
	inbox  string // of those for answers to our calls
	ended  chan struct{}
	work   sync.WaitGroup // of asks that are being answered, and the watch

	findable sync.Once
	out      outbox

	mu sync.Mutex
	tables
}

// tables are the receivers of messages.
type tables struct {
	conns     map[string]*Conn // by the last token of their subject
	listeners map[uint16]*listener
	asks      map[string]*asked
	peers     map[Address]*peer // with connections or calls
	packets   func(from Address, data []byte)
	serves    *offer
	closed    bool
	callTables
}

// Counters is what a link has seen since it was opened.
type Counters struct {
	Reconnects    atomic.Int64 // of this process to NATS
	SlowConsumers atomic.Int64 // times that this process was too slow
	Oversized     atomic.Int64 // messages too large to be sent, or to be taken
	Strange       atomic.Int64 // messages that make no sense
	Resets        atomic.Int64 // connections that were broken off
	Dropped       atomic.Int64 // orders and calls for which there was no free goroutine
	Late          atomic.Int64 // answers that came when their callers had left
}

// Counts is what Counters had at one moment.
type Counts struct{ Reconnects, SlowConsumers, Oversized, Strange, Resets, Dropped, Late int64 }

// Counts reads the counters.
func (c *Counters) Counts() Counts {
	return Counts{
		Reconnects: c.Reconnects.Load(), SlowConsumers: c.SlowConsumers.Load(), Oversized: c.Oversized.Load(),
		Strange: c.Strange.Load(), Resets: c.Resets.Load(), Dropped: c.Dropped.Load(), Late: c.Late.Load(),
	}
}

// startPatience is how long Open waits for NATS. After that the link is
// there, and waits on.
const startPatience = 3 * time.Second

// Open connects to NATS. When no server answers for a while, the link is given
// all the same and goes on calling. CodeInvalid means the config,
// CodeUnauthorized that NATS does not let us in.
func Open(ctx context.Context, c Config) (*Link, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Link{
		config: c, own: newAddress(), base: c.Prefix + "." + c.Cluster + ".", ended: make(chan struct{}),
		tables: tables{conns: map[string]*Conn{}, listeners: map[uint16]*listener{}, asks: map[string]*asked{}, peers: map[Address]*peer{}},
	}
	l.out.wake, l.out.stop, l.out.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	l.mine, l.theirs = map[uint64]*call{}, map[callID]*served{}
	l.home = l.at(l.own)
	l.inbox = l.home + "answer."
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
			c.Log.Warn("NATS is slow", "err", err)
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
	go l.sendPosts() // until Close
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
	l.endCalls(errClosing)
	l.work.Wait()
	l.endPosts()
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
	case "answer":
		l.takeAnswer(rest, m)
	case "roll":
		l.takeRollOfServer(m.Data)
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
		l.Strange.Add(1)
	}
}

// nobody reports whether m is NATS's message that a subject has no subscriber.
func nobody(m *client.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

func (l *Link) takeFrame(name string, m *client.Msg) {
	l.mu.Lock()
	c := l.conns[name]
	if c != nil {
		l.hear(c.peer)
	}
	l.mu.Unlock()
	switch {
	case c != nil && nobody(m):
		c.lose(errGone)
	case c != nil:
		f, err := parseFrame(m.Data)
		if err != nil {
			l.Strange.Add(1)
			c.breakOff(err)
			return
		}
		c.receive(f)
	case m.Reply != "" && !nobody(m):
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
	errQuiet = errors.New("the other end gives no sign of life")
)

func (l *Link) disconnected(_ *client.Conn, err error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return
	}
	l.config.Log.Warn("NATS is lost", "err", err)
	l.resetAll(errDown.Error(), false)
	l.endCalls(errDown)
}

func (l *Link) reconnected(c *client.Conn) {
	l.Reconnects.Add(1)
	l.config.Log.Info("NATS is back", "server", c.ConnectedAddr())
}

// complained handles an error of the background.
func (l *Link) complained(_ *client.Conn, _ *client.Subscription, err error) {
	if errors.Is(err, client.ErrSlowConsumer) {
		l.SlowConsumers.Add(1)
		l.resetAll(errSlow.Error(), true)
		l.endCalls(errSlow)
	}
	l.config.Log.Warn("NATS complains", "err", err)
}

// resetAll breaks all connections off, and notifies the other ends if that can be
// done.
func (l *Link) resetAll(reason string, tell bool) {
	l.mu.Lock()
	all := make([]*Conn, 0, len(l.conns))
	for _, c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		if tell {
			c.breakOff(errors.New(reason))
		} else {
			c.lose(errors.New(reason))
		}
	}
}
