package container

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// execLimit is the default for the maximum number of bytes that an exec returns from each of stdout and stderr.
const execLimit = 1 << 20

// output receives an exec's stdout or stderr. It forwards the data to a writer or, if there is none, stores the data up
// to a limit.
type output struct {
	to    io.Writer // if nil, the output is stored
	limit int       // maximum number of bytes to store

	taken   atomic.Int64 // bytes received
	writing atomic.Int32 // writes in progress

	// If ready is not nil, the first byte only indicates that the command is ready. Write then calls ready and
	// drops this byte.
	ready func()

	mu     sync.Mutex // held while output is forwarded
	kept   bytes.Buffer
	closed bool
}

func newOutput(to io.Writer, limit int) *output {
	if limit <= 0 {
		limit = execLimit
	}
	return &output{to: to, limit: limit}
}

// Write implements io.Writer. It never returns an error, because its caller would then stop reading the output, and the
// command would block. If the output is stored, Write drops everything beyond the limit. Once a write to o.to has
// failed, Write drops all further data.
func (o *output) Write(b []byte) (int, error) {
	o.writing.Add(1)
	defer o.writing.Add(-1)
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(b)
	o.taken.Add(int64(n))
	if o.ready != nil && n > 0 {
		o.ready()
		o.ready, b = nil, b[1:]
	}
	switch {
	case o.closed:
	case o.to == nil:
		o.kept.Write(b[:min(len(b), o.limit-o.kept.Len())])
	default:
		if _, err := o.to.Write(b); err != nil {
			o.closed = true
		}
	}
	return n, nil
}

// close stops forwarding and returns the stored output.
func (o *output) close() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.kept.Bytes()
}

// input provides an exec's stdin, which it reads from Reader. After the last byte, it calls end. If stdin is a
// terminal, it does not call end: it returns an end-of-transmission character, and then waits for the command to exit.
type input struct {
	io.Reader
	terminal bool
	end      func()          // called after the last byte, unless stdin is a terminal
	over     <-chan struct{} // closed when the command has ended
	ready    <-chan struct{} // if not nil, Read waits until it is closed

	begun bool // whether the last line is incomplete
	ended bool
	last  []byte // bytes that Read still has to return after the Reader's last byte
}

// endOfTransmission is the character ^D. At the beginning of a line, it ends a terminal's input. Within a line, it only
// submits what has been typed so far.
const endOfTransmission = "\x04"

// Read implements io.Reader.
func (i *input) Read(b []byte) (int, error) {
	if i.ready != nil {
		select {
		case <-i.ready:
		case <-i.over:
			return 0, io.EOF
		}
	}
	if i.ended {
		n := copy(b, i.last)
		i.last = i.last[n:]
		switch {
		case n > 0:
			return n, nil
		case i.terminal: // returning EOF before the command has ended would hang up the terminal
			<-i.over
		default:
			i.end()
		}
		return 0, io.EOF
	}
	n, err := i.Reader.Read(b)
	if n > 0 {
		i.begun = b[n-1] != '\n'
	}
	if err == nil {
		return n, nil
	}
	if i.ended = true; i.terminal {
		i.last = []byte(endOfTransmission)
		if i.begun {
			i.last = append(i.last, endOfTransmission...)
		}
	}
	return n, nil
}
