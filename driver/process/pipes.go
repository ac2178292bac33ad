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

// execLimit is the default for the maximum number of bytes that an exec returns from each of stdout
// and stderr.
const execLimit = 1 << 20

// pipes implements Files for commands without a terminal.
type pipes struct {
	outputs      [2]*os.File // stdout and stderr
	commandFiles [3]*os.File
	buffered     [2]cappedBuffer // store the beginning of outputs that are not streamed
	work         sync.WaitGroup
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
	e.outputs, e.commandFiles = [2]*os.File{outR, errR}, [3]*os.File{inR, outW, errW}
	streams := [2]io.Writer{exec.Stdout, exec.Stderr}
	if exec.Stdout != nil && exec.Stderr == nil {
		streams[1] = io.Discard // if stdout is streamed, stderr is not returned either
	}
	for i, to := range streams {
		if to == nil {
			e.buffered[i].limit = exec.Limit
			if exec.Limit <= 0 {
				e.buffered[i].limit = execLimit
			}
			to = &e.buffered[i]
		}
		e.work.Go(func() { copyOutput(to, e.outputs[i]) })
	}
	if inW != nil {
		go feed(inW, exec.Stdin)
	}
	return e, nil
}

func (e *pipes) CommandFiles() [3]*os.File { return e.commandFiles }

func (e *pipes) Sent() error {
	return errors.Join(e.commandFiles[0].Close(), e.commandFiles[1].Close(), e.commandFiles[2].Close())
}

func (e *pipes) Finish() (stdout, stderr []byte) {
	for _, f := range e.outputs {
		_ = f.SetReadDeadline(time.Now().Add(Grace))
	}
	e.work.Wait()
	for _, f := range e.outputs {
		_ = f.Close()
	}
	return e.buffered[0].b, e.buffered[1].b
}

// feed copies stdin to the command until stdin ends or the command no longer reads. Nobody waits for
// feed to return, because a blocking Read cannot be interrupted.
func feed(w *os.File, r io.Reader) {
	_, _ = io.Copy(w, r) // if this fails, the command's input ends
	_ = w.Close()
}

// copyOutput copies output until it ends. If the read deadline passes first, copyOutput copies the
// data that is still available and returns.
func copyOutput(to io.Writer, from *os.File) {
	w := &blackholeWriter{w: to}
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

// blackholeWriter forwards data to w until a write fails, and then discards all further data. As a
// result, a command is not blocked if the receiver of its output disconnects.
type blackholeWriter struct {
	w      io.Writer
	failed bool
}

func (p *blackholeWriter) Write(b []byte) (int, error) {
	if !p.failed {
		_, err := p.w.Write(b)
		p.failed = err != nil
	}
	return len(b), nil
}

// cappedBuffer is a writer that stores the first bytes, up to its limit, and discards the rest. It
// accepts all data, so that the command is not blocked.
type cappedBuffer struct {
	b     []byte
	limit int
}

func (l *cappedBuffer) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), l.limit-len(l.b))]...)
	return len(p), nil
}
