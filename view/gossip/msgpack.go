package gossip

import "encoding/binary"

// memberlist encodes messages in the original MessagePack format, which lacks the types bin and
// ext. Its decoder also accepts bin, so the functions below also skip bin.

// maxDepth is the maximum nesting depth of values. The deepest values that members send are maps of
// lists.
const maxDepth = 4

// skipMap skips the map at the start of b and returns the remaining data. It returns false if b
// does not start with a complete map.
func skipMap(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0]>>4 != 0x8 && b[0] != 0xde && b[0] != 0xdf {
		return nil, false
	}
	return skip(b, maxDepth)
}

// skip skips the value at the start of b and returns the remaining data. It returns false if the
// value is incomplete or nested too deeply.
func skip(b []byte, depth int) (rest []byte, ok bool) {
	if len(b) == 0 || depth == 0 {
		return nil, false
	}
	kind, b := b[0], b[1:]
	switch {
	case kind < 0x80, kind >= 0xe0: // small integers
		return b, true
	case kind < 0x90:
		return skipMany(b, 2*uint64(kind&0xf), depth)
	case kind < 0xa0:
		return skipMany(b, uint64(kind&0xf), depth)
	case kind < 0xc0:
		return skipBytes(b, uint64(kind&0x1f))
	}
	switch kind {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return b, true
	case 0xcc, 0xd0: // integers and floats
		return skipBytes(b, 1)
	case 0xcd, 0xd1:
		return skipBytes(b, 2)
	case 0xca, 0xce, 0xd2:
		return skipBytes(b, 4)
	case 0xcb, 0xcf, 0xd3:
		return skipBytes(b, 8)
	}
	return skipSized(kind, b, depth)
}

// skipSized skips the rest of a value whose kind is followed by a length. b begins with the length.
func skipSized(kind byte, b []byte, depth int) ([]byte, bool) {
	size := 4
	switch kind {
	case 0xc4, 0xd9:
		size = 1
	case 0xc5, 0xda, 0xdc, 0xde:
		size = 2
	case 0xc6, 0xdb, 0xdd, 0xdf:
	default: // extensions, which members do not send
		return nil, false
	}
	if len(b) < size {
		return nil, false
	}
	var wide [8]byte
	copy(wide[8-size:], b[:size])
	n, b := binary.BigEndian.Uint64(wide[:]), b[size:]
	switch kind {
	case 0xdc, 0xdd:
		return skipMany(b, n, depth)
	case 0xde, 0xdf:
		return skipMany(b, 2*n, depth)
	}
	return skipBytes(b, n)
}

func skipBytes(b []byte, n uint64) ([]byte, bool) {
	if n > uint64(len(b)) {
		return nil, false
	}
	return b[n:], true
}

func skipMany(b []byte, n uint64, depth int) ([]byte, bool) {
	if n > uint64(len(b)) { // each value takes at least one byte
		return nil, false
	}
	for range n {
		rest, ok := skip(b, depth-1)
		if !ok {
			return nil, false
		}
		b = rest
	}
	return b, true
}

// header is the header of a push/pull message: the number of members, and the number of bytes of
// state.
type header struct{ nodes, state uint64 }

// readHeader reads the header of a push/pull message, a map with exactly three fields. It also
// returns the data after the header.
func readHeader(b []byte) (h header, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != 0x83 {
		return h, nil, false
	}
	b = b[1:]
	seen := map[string]bool{}
	for range 3 {
		if len(b) == 0 || b[0]>>5 != 0x5 {
			return h, nil, false
		}
		n := int(b[0] & 0x1f)
		if len(b) < 1+n {
			return h, nil, false
		}
		name := string(b[1 : 1+n])
		b = b[1+n:]
		if seen[name] {
			return h, nil, false
		}
		seen[name] = true
		switch name {
		case "Nodes":
			h.nodes, b, ok = readCount(b)
		case "UserStateLen":
			h.state, b, ok = readCount(b)
		case "Join":
			ok = len(b) > 0 && (b[0] == 0xc2 || b[0] == 0xc3)
			b = b[min(1, len(b)):]
		default:
			ok = false
		}
		if !ok {
			return h, nil, false
		}
	}
	return h, b, true
}

// readCount reads a nonnegative integer and returns it with the data after it.
func readCount(b []byte) (n uint64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	if b[0] < 0x80 {
		return uint64(b[0]), b[1:], true
	}
	size := 0
	switch b[0] {
	case 0xcc, 0xd0:
		size = 1
	case 0xcd, 0xd1:
		size = 2
	case 0xce, 0xd2:
		size = 4
	case 0xcf, 0xd3:
		size = 8
	}
	signed := b[0] >= 0xd0
	if size == 0 || len(b) < 1+size || signed && b[1] >= 0x80 {
		return 0, nil, false
	}
	var wide [8]byte
	copy(wide[8-size:], b[1:1+size])
	return binary.BigEndian.Uint64(wide[:]), b[1+size:], true
}
