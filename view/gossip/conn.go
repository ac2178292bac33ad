package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// conn is a memberlist stream, which carries one message in each direction. Each call to Write
// sends a whole message. As with memberlist's own streams, only one goroutine at a time may use a
// conn.
type conn struct {
	net.Conn
	t      *Transport
	dialed bool
	close  func()

	sent     bool
	opened   bool
	plain    bytes.Reader // unread part of the received message
	err      error        // reason why no message was received; nil if one was received
	reserved int64        // bytes reserved in the transport's memory field
}

// frame is the size, in bytes, of the header that precedes a sealed message on a stream. The header
// contains the message's type and length.
const frame = 5

// Write sends a message.
func (c *conn) Write(message []byte) (int, error) {
	if len(message) > maxMessage-overhead {
		return 0, errSize
	}
	out := make([]byte, 0, 2+len(c.t.label)+frame+overhead+len(message))
	if c.dialed && !c.sent {
		out = c.t.appendLabel(out)
	}
	c.sent = true
	start := len(out)
	out = binary.BigEndian.AppendUint32(append(out, typeEncrypted), uint32(overhead+len(message)))
	if _, err := c.Conn.Write(c.t.keys.seal(out, message, c.bound(out[start:]))); err != nil {
		return 0, err
	}
	return len(message), nil
}

// bound returns the additional data that is authenticated together with a message: the message's
// header and the label.
func (c *conn) bound(frame []byte) []byte {
	return append(append([]byte(nil), frame...), c.t.label...)
}

// Read reads from the received message. The first call receives and validates the whole message.
// Read does not read beyond the message.
func (c *conn) Read(p []byte) (int, error) {
	if !c.opened {
		c.opened = true
		message, err := c.open()
		c.plain.Reset(message)
		c.err = err
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.plain.Read(p)
}

// Close closes the stream and releases the memory that is reserved for it.
func (c *conn) Close() error {
	c.plain.Reset(nil)
	c.t.memory.Release(c.reserved)
	c.reserved = 0
	c.close()
	return c.Conn.Close()
}

func (c *conn) open() ([]byte, error) {
	if !c.dialed {
		want := c.t.appendLabel(nil)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c.Conn, got); err != nil {
			return nil, err
		}
		if !bytes.Equal(got, want) {
			return nil, errLabel
		}
	}
	var head [frame]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != typeEncrypted:
		return nil, errSealed
	case size > maxMessage:
		return nil, errSize
	}
	sealed, err := c.read(int(size))
	if err != nil {
		return nil, err
	}
	message, err := c.t.keys.open(sealed, c.bound(head[:]))
	if err != nil {
		return nil, err
	}
	return message, checkStream(message)
}

var errNoMemory = errors.New("too many long messages at the same time")

// read reads size bytes. It allocates memory only as the data arrives, so that a peer cannot make
// it allocate much more memory than the peer sends.
func (c *conn) read(size int) ([]byte, error) {
	out := make([]byte, 0, min(size, shortMessage))
	for len(out) < size {
		if len(out) == cap(out) {
			more := min(len(out), size-len(out))
			if !c.t.memory.TryAcquire(int64(more)) {
				return nil, errNoMemory
			}
			c.reserved += int64(more)
			out = append(make([]byte, 0, len(out)+more), out...)
		}
		n, err := c.Conn.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) == size:
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}
