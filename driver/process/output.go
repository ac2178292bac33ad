package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// chunk is what is read from a pipe at once. Buffers are taken from a pool
// when there is data and given back before waiting for more, so that a quiet
// task holds none.
const chunk = 16 << 10

type ioBuffers struct {
	in  []byte
	out []byte
}

var buffers = sync.Pool{New: func() any {
	return &ioBuffers{in: make([]byte, chunk), out: make([]byte, 0, flushSize+maxLine+128)}
}}

// stream copies one output of a task into the machine's log.
type stream struct {
	name string
	pipe *os.File
	log  *machineLog
	rest []byte // of a line that has not ended; empty most of the time
}

// copy reads until all who could write have closed the pipe, or its read
// deadline was set and what was there has been read.
func (s *stream) copy() {
	defer s.pipe.Close()
	raw, err := s.pipe.SyscallConn()
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
		s.log.append(appendLine(nil, time.Now(), s.name, false, s.rest))
	}
}

// take reads once and logs what came. again: nothing is there yet.
func (s *stream) take(fd int) (again bool, err error) {
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

// drain reads what is left in a pipe that others keep open: at most what a
// pipe can hold, since they may also keep writing.
func (s *stream) drain(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		for range (1 << 20) / chunk {
			if again, err := s.take(int(fd)); again || err != nil {
				return
			}
		}
	})
}

// write logs the lines of data and keeps the beginning of an unfinished one.
func (s *stream) write(b *ioBuffers, data []byte, at time.Time) {
	if len(s.rest) > 0 {
		data = append(s.rest, data...)
	}
	limit := int(min(flushSize, s.log.limit()))
	out := b.out[:0]
	rest := splitLines(data, func(text []byte, partial bool) {
		if len(out) > 0 && len(out)+len(text)+64 > limit {
			s.log.append(out)
			out = out[:0]
		}
		out = appendLine(out, at, s.name, partial, text)
	})
	if len(out) > 0 {
		s.log.append(out)
	}
	b.out = out[:0]
	if len(rest) == 0 {
		s.rest = nil
		return
	}
	s.rest = append([]byte(nil), rest...)
}

// output is both streams of a task.
type output struct {
	opened chan struct{} // closed once pipes are set
	pipes  [2]*os.File
	wg     sync.WaitGroup
}

// newOutput begins to copy what comes out of the two pipes. It owns them.
// Nothing is done on the caller's time: it has a start to answer.
func newOutput(stdout, stderr int, log *machineLog) *output {
	o := &output{opened: make(chan struct{})}
	o.wg.Go(func() {
		o.pipes = [2]*os.File{os.NewFile(uintptr(stdout), "stdout"), os.NewFile(uintptr(stderr), "stderr")}
		close(o.opened)
		for i, p := range o.pipes {
			s := &stream{name: p.Name(), pipe: o.pipes[i], log: log}
			o.wg.Go(s.copy)
		}
	})
	return o
}

// finish waits for the end of both streams. If somebody who does not belong
// to the task any more keeps them open, it takes what is there after grace.
func (o *output) finish(grace time.Duration) {
	done := make(chan struct{})
	go func() { o.wg.Wait(); close(done) }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	<-o.opened
	for _, p := range o.pipes {
		_ = p.SetReadDeadline(time.Now())
	}
	<-done
}
