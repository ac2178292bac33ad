package gossip

import (
	"encoding/binary"
	"errors"
)

// Types of messages between members, as numbered by memberlist.
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

// Errors for invalid messages.
var (
	errLabel = errors.New("the message belongs to another cluster")
	errSize  = errors.New("the message is too long")
	errType  = errors.New("invalid message type")
	errForm  = errors.New("malformed message")
	errNodes = errors.New("the message declares more members than it contains")
)

// sumSize is the size of a checksum header, in bytes.
const sumSize = 5

// checkPacket returns an error if a packet is invalid. A packet contains one or more messages,
// which may be preceded by a checksum.
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

// checkMessage returns an error if a message in a packet is invalid.
func checkMessage(m []byte) error {
	if len(m) == 0 {
		return errForm
	}
	switch m[0] {
	case typeUser: // Rumors.Receive validates these messages
		return nil
	case typePing, typeIndirectPing, typeAck, typeSuspect, typeAlive, typeDead, typeNack:
		return checkValues(m[1:], 1)
	default:
		return errType
	}
}

// checkStream returns an error if a message on a stream is invalid.
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

// checkValues returns an error unless m consists of exactly n maps.
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

// minNode is a lower bound on the encoded length, in bytes, of a member in a push/pull message; the
// field names alone are longer. checkState uses it to reject a message that declares more members
// than its length allows. This limits the memory that memberlist allocates for members.
const minNode = 32

// checkState returns an error unless m consists of a header, followed by exactly as many members
// and as many bytes of state as the header declares.
func checkState(m []byte) error {
	h, rest, ok := readHeader(m)
	switch {
	case !ok:
		return errForm
	case h.nodes > uint64(len(rest)/minNode) || h.state > uint64(len(rest)):
		return errNodes
	}
	end := len(rest) - int(h.state)
	return checkValues(rest[:end], int(h.nodes))
}
