package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// execLimit is the default limit in bytes of each returned output.
const execLimit = 1 << 20

// pipes holds the files of a command without a terminal.
type pipes struct {
	ours  [2]*os.File // stdout and stderr
	given [3]*os.File
	kept  [2]limited // store the beginning of each output that is not streamed to a writer
	work  sync.WaitGroup
}

func newPipes(exec driver.Exec) (*pipes, error) {
	e := &pipes{}
	var all []*os.File
	open := func(r, w *os.File, err error) (*os.File, *os.File, error) {
		all = append(all, r, w)
		return r, w, err
	}
	outR, outW, err1 := open(os.Pipe())
	errR, errW, err2 := open(os.Pipe())
	var inR, inW *os.File
	var err3 error
	if exec.Stdin == nil {
		inR, err3 = os.Open(os.DevNull)
		all = append(all, inR)
	} else {
		inR, inW, err3 = open(os.Pipe())
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		for _, f := range all {
			_ = f.Close() // Close on a nil file only returns an error
		}
		return nil, err
	}
	e.ours, e.given = [2]*os.File{outR, errR}, [3]*os.File{inR, outW, errW}
	streams := [2]io.Writer{exec.Stdout, exec.Stderr}
	if exec.Stdout != nil && exec.Stderr == nil {
		streams[1] = io.Discard // no output is returned if either is streamed
	}
	for i, to := range streams {
		if to == nil {
			e.kept[i].limit = exec.Limit
			if exec.Limit <= 0 {
				e.kept[i].limit = execLimit
			}
			to = &e.kept[i]
		}
		e.work.Go(func() { copyOutput(to, e.ours[i]) })
	}
	if inW != nil {
		go feed(inW, exec.Stdin)
	}
	return e, nil
}

func (e *pipes) Theirs() [3]*os.File { return e.given }

func (e *pipes) Sent() error {
	return errors.Join(e.given[0].Close(), e.given[1].Close(), e.given[2].Close())
}

func (e *pipes) Finish() (stdout, stderr []byte) {
	for _, f := range e.ours {
		_ = f.SetReadDeadline(time.Now().Add(Grace))
	}
	e.work.Wait()
	for _, f := range e.ours {
		_ = f.Close()
	}
	return e.kept[0].b, e.kept[1].b
}

// feed copies stdin to w until either side ends. Nobody waits for feed, because a blocking Read
// cannot be interrupted.
func feed(w *os.File, r io.Reader) {
	_, _ = io.Copy(w, r) // if copying fails, the command sees the end of its input
	_ = w.Close()
}

// copyOutput copies until the output ends, or until its read deadline has passed and the
// available data has been read.
func copyOutput(to io.Writer, from *os.File) {
	w := &patient{w: to}
	_, err := io.Copy(w, from)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		b := make([]byte, 32<<10)
		for range (1 << 20) / len(b) { // a pipe's capacity; any further data arrived after the deadline
			n, err := syscall.Read(int(fd), b)
			if n <= 0 || err != nil {
				return
			}
			_, _ = w.Write(b[:n])
		}
	})
}

// patient is a writer that accepts all data, even after a write to w has failed. A command is
// therefore not blocked when the reader of its output disconnects.
type patient struct {
	w    io.Writer
	left bool
}

func (p *patient) Write(b []byte) (int, error) {
	if !p.left {
		_, err := p.w.Write(b)
		p.left = err != nil
	}
	return len(b), nil
}

// limited stores the first bytes written to it, up to its limit, and discards the rest, so that
// the writer is never blocked.
type limited struct {
	b     []byte
	limit int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), l.limit-len(l.b))]...)
	return len(p), nil
}
