package nats

import (
	"net/netip"

	client "github.com/nats-io/nats.go"
)

// maxPacket is the maximum size of a packet. It is far larger than memberlist's
// packets.
const maxPacket = 64 << 10

func addressIn(b []byte) (Address, error) {
	if len(b) < 16 {
		return Address{}, errNoAddress
	}
	a := netip.AddrFrom16([16]byte(b[:16]))
	if !network.Contains(a) {
		return a, errNoAddress
	}
	return a, nil
}

// sendPacket sends a packet to an address. The packet may be lost.
func (l *Link) sendPacket(to Address, data []byte) error {
	own := l.own.As16()
	return l.publishError(l.nats.Publish(l.prefixOf(to)+"packet", append(own[:], data...)))
}

func (l *Link) takePacket(m *client.Msg) {
	from, err := addressIn(m.Data)
	if err != nil {
		l.Malformed.Add(1)
		return
	}
	if len(m.Data) > maxPacket {
		l.Oversized.Add(1)
		return
	}
	l.mu.Lock()
	packets := l.packets
	l.mu.Unlock()
	if packets != nil {
		packets(from, m.Data[16:])
	}
}
