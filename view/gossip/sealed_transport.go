package gossip

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/semaphore"
)

// Limits on incoming data.
const (
	// maxPacket is the maximum length of an incoming packet. Members send packets of at most
	// [MaxMessage] bytes.
	maxPacket = 4 << 10
	// maxMessage is the maximum length of a message on a stream. It is enough for a push/pull of
	// 10,000 members.
	maxMessage = 8 << 20
	// maxLongMessages is the maximum amount of memory, in bytes, for long messages that are being
	// received on streams. The first shortMessage bytes of each message do not count.
	maxLongMessages = 16 << 20
	shortMessage    = 64 << 10
	// maxStreams is the maximum number of concurrent incoming streams.
	maxStreams = 128
)

// datagram is the length, in bytes, of the longest packet that every network can carry without
// fragmentation.
const datagram = 1400

// MaxMessage returns the maximum length of a message in a packet, in bytes, for members that use
// this label.
func MaxMessage(label string) int { return datagram - 2 - len(label) - overhead }

// Transport is a memberlist transport on top of another one. It encrypts outgoing messages, and
// decrypts and validates incoming ones. memberlist must be configured without keys, a label or
// compression.
type Transport struct {
	memberlist.Transport
	label   string
	keys    *Keys
	refused func(from net.Addr, why error)

	packets chan *memberlist.Packet
	streams chan net.Conn
	slots   chan struct{}       // one element per open incoming stream
	memory  *semaphore.Weighted // limits the memory for long messages to maxLongMessages
	done    chan struct{}
	pumps   sync.WaitGroup
}

// New returns a Transport that uses below to send and receive. The Transport runs until Shutdown is
// called. It calls refused for each packet or stream that it refuses. At most two such calls are in
// progress at the same time: one for a packet and one for a stream.
func New(below memberlist.Transport, label string, keys *Keys, refused func(from net.Addr, why error)) *Transport {
	t := &Transport{
		Transport: below, label: label, keys: keys, refused: refused,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), slots: make(chan struct{}, maxStreams),
		memory: semaphore.NewWeighted(maxLongMessages), done: make(chan struct{}),
	}
	t.pumps.Go(t.pumpPackets)
	t.pumps.Go(t.pumpStreams)
	return t
}

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo implements memberlist.Transport.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	label := []byte(t.label)
	out := make([]byte, 0, 2+len(label)+overhead+len(b))
	return t.Transport.WriteTo(t.keys.seal(t.appendLabel(out), b, label), addr)
}

// DialTimeout implements memberlist.Transport.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, t: t, dialed: true, close: func() {}}, nil
}

// Shutdown implements memberlist.Transport. The pumps continue to run until the underlying
// transport has stopped, because it may still be delivering a packet.
func (t *Transport) Shutdown() error {
	err := t.Transport.Shutdown()
	close(t.done)
	t.pumps.Wait()
	return err
}

func (t *Transport) appendLabel(b []byte) []byte {
	return append(append(b, typeLabel, byte(len(t.label))), t.label...)
}

func (t *Transport) pumpPackets() {
	for {
		select {
		case <-t.done:
			return
		case p := <-t.Transport.PacketCh():
			message, err := t.openPacket(p.Buf)
			if err != nil {
				t.refused(p.From, err)
				continue
			}
			select {
			case t.packets <- &memberlist.Packet{Buf: message, From: p.From, Timestamp: p.Timestamp}:
			case <-t.done:
				return
			}
		}
	}
}

// openPacket decrypts and validates the message in a packet. The result does not refer to b,
// because memberlist queues some messages, and a queued message would retain all of b's memory.
func (t *Transport) openPacket(b []byte) ([]byte, error) {
	if len(b) > maxPacket {
		return nil, errSize
	}
	n := 2 + len(t.label)
	if len(b) < n || b[0] != typeLabel || int(b[1]) != len(t.label) || string(b[2:n]) != t.label {
		return nil, errLabel
	}
	message, err := t.keys.open(b[n:], b[2:n])
	if err != nil {
		return nil, err
	}
	return message, checkPacket(message)
}

var errStreams = errors.New("too many concurrent streams")

func (t *Transport) pumpStreams() {
	for {
		select {
		case <-t.done:
			return
		case c := <-t.Transport.StreamCh():
			select {
			case t.slots <- struct{}{}:
			default:
				_ = c.Close() // not via conn.Close, because the stream has no slot to release
				t.refused(c.RemoteAddr(), errStreams)
				continue
			}
			accepted := &conn{Conn: c, t: t, close: sync.OnceFunc(func() { <-t.slots })}
			select {
			case t.streams <- accepted:
			case <-t.done:
				_ = accepted.Close() // memberlist does not accept streams anymore
				return
			}
		}
	}
}
