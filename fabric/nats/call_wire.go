package nats

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// callKind is the kind of a message of calls: its first byte.
type callKind byte

// The kinds of messages of calls. Their numbers are on the wire.
const (
	callRequest callKind = 1 // to a worker, with a subject for the answer: see appendRequest
	callLeave   callKind = 2 // to a worker: the answer is no longer waited for; a callID
	callPart    callKind = 3 // to a caller: a part of an answer, see part
	callBroken  callKind = 4 // to a caller: there will be no answer
	callRoll    callKind = 5 // either way: calls that the sender takes to be in progress, see roll
)

// callID is a call's name: unique, and never used twice.
type callID struct {
	from   Address // of the caller
	number uint64
}

// calls is the subject at which an address takes calls.
func (l *Link) calls(a Address) string { return l.base + "call." + token(a) }

// answers is the subject at which a caller takes what becomes of a call.
func (l *Link) answers(id callID) string { return l.at(id.from) + "answer." + number(id.number) }

// callOf reads the call's name out of such a subject.
func (l *Link) callOf(subject string) (callID, bool) {
	const mid = ".answer."
	var b [16]byte
	rest, ok := strings.CutPrefix(subject, l.base)
	if ok {
		rest, ok = strings.CutPrefix(rest, "at.")
	}
	if !ok || len(rest) < 2*len(b) || !strings.HasPrefix(rest[2*len(b):], mid) {
		return callID{}, false
	}
	if _, err := hex.Decode(b[:], []byte(rest[:2*len(b)])); err != nil {
		return callID{}, false
	}
	n, ok := parseNumber(rest[2*len(b)+len(mid):])
	id := callID{from: netip.AddrFrom16(b), number: n}
	return id, ok && network.Contains(id.from)
}

// number writes a call's number as a token of a subject.
func number(n uint64) string { return strconv.FormatUint(n, 36) }

func parseNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 36, 64)
	return n, err == nil && number(n) == s
}

// request is what a worker reads of one.
type request struct {
	to bourse.WorkerID
	fabric.Message
}

// requestHeader limits what a request needs besides its texts and body, in bytes.
const requestHeader = 1 + binary.MaxVarintLen32 + fabric.MessageRoom

// appendRequest writes a request onto b: the worker, after its length, and the
// message.
func appendRequest(b []byte, to bourse.WorkerID, m *fabric.Message) []byte {
	return fabric.AppendMessage(fabric.AppendText(append(b, byte(callRequest)), string(to)), m)
}

// parseRequest reads what appendRequest wrote, after its kind. The body is part
// of b.
func parseRequest(b []byte) (r request, err error) {
	to, b, err := fabric.CutText(b)
	if err != nil {
		return r, err
	}
	r.to = bourse.WorkerID(to)
	r.Message, err = fabric.ParseMessage(b)
	return r, err
}

// part is a part of an answer. They come in order, the first at offset 0; the
// answer is complete when it has size bytes.
type part struct {
	status int
	size   uint32 // of the whole body
	offset uint32 // of data in it
	data   []byte
}

const partHeader = 11

// putPart writes what comes before a part's data into b, which has at least
// partHeader bytes.
func putPart(b []byte, status int, size, offset uint32) {
	b[0] = byte(callPart)
	binary.BigEndian.PutUint16(b[1:], uint16(status))
	binary.BigEndian.PutUint32(b[3:], size)
	binary.BigEndian.PutUint32(b[7:], offset)
}

// parsePart reads a part, its kind included. Its data is part of b.
func parsePart(b []byte) (part, error) {
	if len(b) < partHeader || callKind(b[0]) != callPart {
		return part{}, fmt.Errorf("a part of %d bytes", len(b))
	}
	p := part{
		status: int(binary.BigEndian.Uint16(b[1:])), size: binary.BigEndian.Uint32(b[3:]),
		offset: binary.BigEndian.Uint32(b[7:]), data: b[partHeader:],
	}
	if p.size > fabric.MaxAnswer || uint64(p.offset)+uint64(len(p.data)) > uint64(p.size) || p.status < 100 || p.status > 999 {
		return p, fmt.Errorf("a part of %d bytes at %d, of %d, with status %d", len(p.data), p.offset, p.size, p.status)
	}
	return p, nil
}

// leaving is the message that a call is no longer waited for.
func leaving(id callID) []byte {
	b := []byte{byte(callLeave)}
	from := id.from.As16()
	return binary.BigEndian.AppendUint64(append(b, from[:]...), id.number)
}

// parseLeave reads what leaving wrote, after its kind.
func parseLeave(b []byte) (callID, error) {
	from, err := addressIn(b)
	if err != nil {
		return callID{}, err
	}
	if len(b) != 24 {
		return callID{}, fmt.Errorf("a call's name of %d bytes", len(b))
	}
	return callID{from: from, number: binary.BigEndian.Uint64(b[16:])}, nil
}

// roll is the calls that one end takes to be in progress between it and another. The
// other answers for those that it does not know.
type roll struct {
	from    Address // of the sender
	numbers []uint64
}

// mostInRoll bounds how many calls a roll names; others come with a later one.
const mostInRoll = 512

// bytes writes the roll.
func (r *roll) bytes() []byte {
	from := r.from.As16()
	b := append([]byte{byte(callRoll)}, from[:]...)
	for _, n := range r.numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// parseRoll reads what bytes wrote, after its kind.
func parseRoll(b []byte) (roll, error) {
	from, err := addressIn(b)
	if err != nil {
		return roll{}, err
	}
	r, b := roll{from: from}, b[16:]
	if len(b)%8 != 0 || len(b)/8 > mostInRoll {
		return roll{}, fmt.Errorf("a roll of %d bytes", len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		r.numbers = append(r.numbers, binary.BigEndian.Uint64(b))
	}
	return r, nil
}
