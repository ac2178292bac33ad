package gossip

import (
	"encoding/binary"
	"errors"
)

// The types of messages that members send, as memberlist numbers them.
const (
	typePing         = 0
	typeIndirectPing = 1
	typeAck          = 2
	typeSuspect      = 3
	typeAlive        = 4
	typeDead         = 5
	typePushPull     = 6
	typeCompound     = 7
	typeUser         = 8
	typeEncrypted    = 10
	typeNack         = 11
	typeSum          = 12
	typeError        = 13
	typeLabel        = 244
)

// Why a message is refused.
var (
	errLabel = errors.New("it is of another cluster")
	errSize  = errors.New("it is too long")
	errType  = errors.New("members send nothing of this type")
	errForm  = errors.New("it is malformed")
	errNodes = errors.New("it declares more members than it has")
)

// sumSize is what is before a message with a checksum.
const sumSize = 5

// checkPacket reports what is wrong with the message of a packet: one, or several
// of them, and perhaps a checksum before.
func checkPacket(m []byte) error {
	if len(m) > sumSize && m[0] == typeSum {
		m = m[sumSize:]
	}
	if len(m) == 0 || m[0] != typeCompound {
		return checkMessage(m)
	}
	if len(m) < 2 {
		return errForm
	}
	n := int(m[1])
	lengths, rest := m[2:], m[2:]
	if len(rest) < 2*n {
		return errForm
	}
	rest = rest[2*n:]
	for i := range n {
		size := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if size > len(rest) {
			return errForm
		}
		if err := checkMessage(rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return errForm
	}
	return nil
}

// checkMessage reports what is wrong with a single message of a packet.
func checkMessage(m []byte) error {
	if len(m) == 0 {
		return errForm
	}
	switch m[0] {
	case typeUser: // ours: who takes it checks it
		return nil
	case typePing, typeIndirectPing, typeAck, typeSuspect, typeAlive, typeDead, typeNack:
		return checkValues(m[1:], 1)
	default:
		return errType
	}
}

// checkStream reports what is wrong with the message of a stream.
func checkStream(m []byte) error {
	if len(m) == 0 {
		return errForm
	}
	switch m[0] {
	case typePing, typeAck, typeError:
		return checkValues(m[1:], 1)
	case typePushPull:
		return checkState(m[1:])
	default:
		return errType
	}
}

// checkValues wants n maps and nothing else.
func checkValues(m []byte, n int) error {
	for range n {
		rest, ok := skipMap(m)
		if !ok {
			return errForm
		}
		m = rest
	}
	if len(m) > 0 {
		return errForm
	}
	return nil
}

// leastNode is the length of a member in a push/pull, at least: the names of
// its fields alone are longer. Memberlist allocates as many as are declared.
const leastNode = 32

// checkState wants a header, the members that it declares, and as many bytes
// behind them.
func checkState(m []byte) error {
	h, rest, ok := readHeader(m)
	switch {
	case !ok:
		return errForm
	case h.nodes > uint64(len(rest)/leastNode) || h.state > uint64(len(rest)):
		return errNodes
	}
	end := len(rest) - int(h.state)
	return checkValues(rest[:end], int(h.nodes))
}
