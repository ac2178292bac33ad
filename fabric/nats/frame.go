package nats

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// kind is the kind of a frame.
type kind byte

// The kinds of frames. Their numbers are on the wire.
const (
	kindOpen   kind = 1 // of the dialer, first: where it is, and its window
	kindAccept kind = 2 // of the other end, first: its window
	kindData   kind = 3 // bytes
	kindCredit kind = 4 // so many bytes more may be sent
	kindEnd    kind = 5 // there are no more bytes
	kindReset  kind = 6 // the connection is over; the reason as text
)

// frame is one message of a connection. Its number counts what its sender has
// sent on this connection, from 0.
type frame struct {
	kind   kind
	number uint32
	data   []byte // data, or the reason of a reset
	from   Address
	window uint32 // open, accept: what its sender takes unread; credit: how much more
}

const (
	frameHeader = 5
	maxReason   = 200
)

// append writes the frame onto b.
func (f *frame) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, byte(f.kind)), f.number)
	switch f.kind {
	case kindOpen:
		from := f.from.As16()
		b = append(b, from[:]...)
		return binary.BigEndian.AppendUint32(b, f.window)
	case kindAccept, kindCredit:
		return binary.BigEndian.AppendUint32(b, f.window)
	case kindData, kindReset:
		return append(b, f.data...)
	default:
		return b
	}
}

// parseFrame reads a frame. Its data is part of b.
func parseFrame(b []byte) (frame, error) {
	if len(b) < frameHeader {
		return frame{}, fmt.Errorf("a frame of %d bytes", len(b))
	}
	f := frame{kind: kind(b[0]), number: binary.BigEndian.Uint32(b[1:])}
	rest := b[frameHeader:]
	if n, fixed := f.kind.size(); fixed && len(rest) != n {
		return frame{}, fmt.Errorf("a frame of kind %d with %d bytes", f.kind, len(rest))
	}
	switch f.kind {
	case kindOpen:
		f.from = netip.AddrFrom16([16]byte(rest))
		if !network.Contains(f.from) {
			return frame{}, fmt.Errorf("a frame from %s", f.from)
		}
		f.window = binary.BigEndian.Uint32(rest[16:])
	case kindAccept, kindCredit:
		f.window = binary.BigEndian.Uint32(rest)
	case kindData:
		f.data = rest
	case kindReset:
		f.data = rest[:min(len(rest), maxReason)]
	case kindEnd:
	default:
		return frame{}, fmt.Errorf("a frame of kind %d", f.kind)
	}
	return f, nil
}

// size returns how many bytes a frame of this kind has after its header, where
// that is fixed.
func (k kind) size() (n int, fixed bool) {
	switch k {
	case kindOpen:
		return 20, true
	case kindAccept, kindCredit:
		return 4, true
	case kindEnd:
		return 0, true
	default:
		return 0, false
	}
}
