package container

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// execLimit is how much of each output of an exec is kept when nothing else is
// asked.
const execLimit = 1 << 20

// output takes one output of an exec: it passes it on, or keeps its beginning.
type output struct {
	to    io.Writer // nil: it is kept
	limit int       // bytes that are

	taken   atomic.Int64 // bytes that have come
	writing atomic.Int32 // writes in progress

	mu     sync.Mutex // held while it is passed on
	kept   bytes.Buffer
	closed bool
}

func newOutput(to io.Writer, limit int) *output {
	if limit <= 0 {
		limit = execLimit
	}
	return &output{to: to, limit: limit}
}

// Write implements io.Writer. What is over the limit is dropped: the command
// is not held up. Nor is it when no one listens any more.
func (o *output) Write(b []byte) (int, error) {
	o.writing.Add(1)
	defer o.writing.Add(-1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken.Add(int64(len(b)))
	switch {
	case o.closed:
	case o.to == nil:
		o.kept.Write(b[:min(len(b), o.limit-o.kept.Len())])
	default:
		if _, err := o.to.Write(b); err != nil {
			o.closed = true
		}
	}
	return len(b), nil
}

// close ends it: nothing is passed on any more when it returns. It returns what
// was kept.
func (o *output) close() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.kept.Bytes()
}

// input is the stdin of an exec. It says when it has ended, and to a terminal
// it says so as a person would.
type input struct {
	io.Reader
	terminal bool
	end      func()          // called once it has ended, not with a terminal
	over     <-chan struct{} // closed when the command has ended

	begun bool // a line has begun and not ended
	ended bool
	last  []byte // still to be given after the end
}

// endOfTransmission is what a terminal takes for the end of input, at the
// beginning of a line. Elsewhere it ends the line's piece only.
const endOfTransmission = "\x04"

// Read implements io.Reader.
func (i *input) Read(b []byte) (int, error) {
	if i.ended {
		n := copy(b, i.last)
		i.last = i.last[n:]
		switch {
		case n > 0:
			return n, nil
		case i.terminal: // its end would be a hang-up
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
