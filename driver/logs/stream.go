package logs

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// chunk is the maximum number of bytes to read from a pipe at a time. A stream holds a buffer from the pool only while
// it has data to read, so machines without output do not use memory for buffers.
const chunk = 2 * maxLine

type ioBuffers struct {
	in  []byte
	out []byte
}

var buffers = sync.Pool{New: func() any {
	return &ioBuffers{in: make([]byte, chunk), out: make([]byte, 0, flushSize+maxLine+128)}
}}

// Stream copies one of a program's output streams from a pipe to the machine's log.
type Stream struct {
	Name string   // "stdout" or "stderr"
	Pipe *os.File // non-blocking; closed by Copy
	Log  *Log
	rest []byte // the beginning of an incomplete line; usually empty
}

// Copy copies data until all writers have closed the pipe. If the pipe's read deadline passes first, Copy copies the
// data that is still available and returns.
func (s *Stream) Copy() {
	defer s.Pipe.Close()
	raw, err := s.Pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var eof error
		err := raw.Read(func(fd uintptr) bool {
			var again bool
			again, eof = s.take(int(fd))
			return !again
		})
		if err != nil || eof != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.drain(raw)
			}
			break
		}
	}
	if len(s.rest) > 0 {
		s.Log.append(appendLine(nil, time.Now(), s.Name, true, s.rest))
	}
}

// take reads once and logs the data. It returns again=true if no data was available yet.
func (s *Stream) take(fd int) (again bool, err error) {
	b := buffers.Get().(*ioBuffers)
	defer buffers.Put(b)
	for {
		n, err := syscall.Read(fd, b.in)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return true, nil
		case err != nil:
			return false, err
		case n == 0:
			return false, io.EOF
		}
		s.write(b, b.in[:n], time.Now())
		return false, nil
	}
}

// maxPipe is the kernel's default for the maximum capacity of a pipe.
const maxPipe = 1 << 20

// drain reads the data that remains in a pipe that other processes hold open. It reads no more than the capacity of
// a pipe, because those processes may continue to write.
func (s *Stream) drain(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		for range maxPipe / chunk {
			if again, err := s.take(int(fd)); again || err != nil {
				return
			}
		}
	})
}

// write logs the complete lines in data, and saves an incomplete line at the end for the next call.
func (s *Stream) write(b *ioBuffers, data []byte, at time.Time) {
	if len(s.rest) > 0 {
		data = append(s.rest, data...)
	}
	limit := int(min(flushSize, s.Log.limit()))
	out := b.out[:0]
	rest := splitLines(data, func(text []byte, partial bool) {
		if len(out) > 0 && len(out)+len(text)+recordOverhead > limit {
			s.Log.append(out)
			out = out[:0]
		}
		out = appendLine(out, at, s.Name, partial, text)
	})
	if len(out) > 0 {
		s.Log.append(out)
	}
	b.out = out[:0]
	if len(rest) == 0 {
		s.rest = nil
		return
	}
	s.rest = append([]byte(nil), rest...)
}
