package fabric

import (
	"encoding/binary"
	"errors"
	"net/http"
)

// MessageRoom limits what AppendMessage adds to a message's texts and
// body, in bytes.
const MessageRoom = 2 * binary.MaxVarintLen32

var errCutShort = errors.New("a message that is cut short")

// AppendMessage writes a message onto b: the method and the URI, each after its
// length, and the body.
func AppendMessage(b []byte, m *Message) []byte {
	b = AppendText(AppendText(b, m.Method), m.URI)
	return append(b, m.Body...)
}

// ParseMessage reads what AppendMessage wrote. The body is part of b.
func ParseMessage(b []byte) (m Message, err error) {
	if m.Method, b, err = CutText(b); err != nil {
		return Message{}, err
	}
	if m.URI, b, err = CutText(b); err != nil {
		return Message{}, err
	}
	m.Body = b
	return m, nil
}

// AppendText writes a text after its length.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// CutText reads what AppendText wrote, and returns what comes after it.
func CutText(b []byte) (s string, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return "", nil, errCutShort
	}
	return text(b[used : used+int(n)]), b[used+int(n):], nil
}

// text is string(b), which needs no memory for what is usual.
func text(b []byte) string {
	for _, usual := range [...]string{http.MethodPost, routeQuote.before, routeClaim.before} {
		if string(b) == usual {
			return usual
		}
	}
	return string(b)
}
