package nats

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// kind is the kind of a frame.
type kind byte

// Kinds of frames. The numbers are part of the protocol.
const (
	kindOpen   kind = 1 // the dialer's first frame, with its address and window
	kindAccept kind = 2 // the other end's first frame, with its window
	kindData   kind = 3 // data
	kindCredit kind = 4 // number of additional bytes that may be sent
	kindEnd    kind = 5 // no more data follows
	kindReset  kind = 6 // the connection has ended; contains the reason as text
)

// frame is one message of a connection. Each sender numbers its frames on the connection, starting at 0.
type frame struct {
	kind   kind
	number uint32
	data   []byte // data, or the reason for a reset
	from   Address
	window uint32 // in open and accept, the maximum number of unread bytes; in credit, the number of additional bytes
}

const (
	frameHeader = 5
	maxReason   = 200
)

// append appends the encoded frame to b.
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

// parseFrame parses a frame. Its data aliases b.
func parseFrame(b []byte) (frame, error) {
	if len(b) < frameHeader {
		return frame{}, fmt.Errorf("invalid frame of %d bytes", len(b))
	}
	f := frame{kind: kind(b[0]), number: binary.BigEndian.Uint32(b[1:])}
	rest := b[frameHeader:]
	if n, fixed := f.kind.size(); fixed && len(rest) != n {
		return frame{}, fmt.Errorf("frame of kind %d has %d bytes", f.kind, len(rest))
	}
	switch f.kind {
	case kindOpen:
		f.from = netip.AddrFrom16([16]byte(rest))
		if !network.Contains(f.from) {
			return frame{}, fmt.Errorf("frame from invalid address %s", f.from)
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
		return frame{}, fmt.Errorf("unknown frame kind %d", f.kind)
	}
	return f, nil
}

// size returns the number of bytes that follow the header in frames of this kind. If that number is not fixed, it
// returns false.
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
