package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// conn is a stream of memberlist's: one message of who dialed, and one of who
// was dialed. Each message is one call of Write. It is for one goroutine at a
// time, as memberlist uses it.
type conn struct {
	net.Conn
	t      *Transport
	dialed bool
	close  func()

	sent   bool
	opened bool
	plain  bytes.Reader // what is left of the message that came
	err    error        // why none came
	held   int64        // of the transport's space
}

// frame is what is before a sealed message on a stream: its type and length.
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

// bound is what a sealed message is bound to.
func (c *conn) bound(frame []byte) []byte {
	return append(append([]byte(nil), frame...), c.t.label...)
}

// Read reads the message that comes, once it has come as a whole and was looked
// at. Nothing is read behind it.
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

// Close returns the space that the stream took.
func (c *conn) Close() error {
	c.plain.Reset(nil)
	c.t.room.Release(c.held)
	c.held = 0
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

var errRoom = errors.New("too many long messages come at once")

// read reads size bytes. Room is made as they come, so that who declares much
// takes no more than it sends.
func (c *conn) read(size int) ([]byte, error) {
	out := make([]byte, 0, min(size, short))
	for len(out) < size {
		if len(out) == cap(out) {
			more := min(len(out), size-len(out))
			if !c.t.room.TryAcquire(int64(more)) {
				return nil, errRoom
			}
			c.held += int64(more)
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
