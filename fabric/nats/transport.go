package nats

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	client "github.com/nats-io/nats.go"
)

// packetQueue is the maximum number of received packets queued for the membership. Further
// packets are dropped, as with UDP.
const packetQueue = 4096

// Transport transports a membership's gossip over a link.
type Transport struct {
	link    *Link
	packets chan *memberlist.Packet
	streams chan net.Conn
	port    net.Listener
}

var _ memberlist.Transport = (*Transport)(nil)

// Transport returns the transport for a membership. A link supports only one
// membership. Shutdown stops the transport.
func (l *Link) Transport() *Transport {
	t := &Transport{
		link: l, packets: make(chan *memberlist.Packet, packetQueue), streams: make(chan net.Conn), port: l.Listen(PortGossip),
	}
	l.mu.Lock()
	l.packets = t.take
	l.mu.Unlock()
	l.work.Go(t.accept)
	return t
}

func (t *Transport) take(from Address, data []byte) {
	select {
	case t.packets <- &memberlist.Packet{Buf: data, From: tcpAddr(from, PortGossip), Timestamp: time.Now()}:
	default:
	}
}

// accept passes incoming connections to the membership until the port is closed.
func (t *Transport) accept() {
	for {
		c, err := t.port.Accept()
		if err != nil {
			return
		}
		select {
		case t.streams <- c:
		case <-t.link.ended:
			_ = c.Close()
			return
		case <-time.After(dialTimeout): // the membership has stopped
			_ = c.Close()
		}
	}
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.link.own.AsSlice(), PortGossip, nil
}

// WriteTo implements memberlist.Transport.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, _, ok := parseHostPort(addr)
	if !ok {
		return time.Time{}, fmt.Errorf("packet to %s: %w", addr, errNoAddress)
	}
	return time.Now(), t.link.sendPacket(to, b)
}

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout implements memberlist.Transport.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.link.Dial(ctx, addr)
}

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport.
func (t *Transport) Shutdown() error { return t.port.Close() }

// findTimeout is how long a member may take to send its address.
const findTimeout = time.Second

// Find returns the gossip address of a member that NATS chooses, or no address if there is no other
// member yet. From the first call on, this server also answers such requests from other servers.
func (l *Link) Find(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	m, err := l.nats.RequestWithContext(ctx, l.base+"join", nil)
	l.answerFinds.Do(func() {
		if _, err := l.nats.QueueSubscribe(l.base+"join", "members", l.takeJoin); err != nil {
			l.config.Log.Warn("subscribe to join requests failed", "err", err)
		}
	})
	if err != nil {
		return nil
	}
	a, err := addressIn(m.Data)
	if err != nil || a == l.own {
		return nil
	}
	return []string{hostPort(a, PortGossip)}
}

// takeJoin sends this server's address to a server that is looking for the cluster.
func (l *Link) takeJoin(m *client.Msg) {
	if m.Reply != "" {
		_ = l.nats.Publish(m.Reply, l.ownAddress()) // if this fails, the other server repeats its request
	}
}
