package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// openSource is a source whose FIFOs are being read.
type openSource struct {
	Source
	inputs []*input
	copies sync.WaitGroup
}

// input is one output of a machine, as the keeper reads it.
type input struct {
	spool *spool
	pipe  *os.File
	guard *os.File // our own writing end: until it is closed there is no end of what is read
}

// openInput opens a FIFO. CodeNotFound when it is not there, CodeInvalid for
// anything else in its place.
func openInput(path string, s *spool) (*input, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bourse.Errorf(bourse.CodeNotFound, "output %s is not there", bourse.Quoted(path))
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeNamedPipe:
		return nil, bourse.Errorf(bourse.CodeInvalid, "output %s is no FIFO", bourse.Quoted(path))
	}
	pipe, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	guard, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	return &input{spool: s, pipe: pipe, guard: guard}, nil
}

// copy reads until there are no writers any more, or the pipe's read deadline
// was set and what was there has been read.
func (i *input) copy() {
	raw, err := i.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var eof error
		err := raw.Read(func(fd uintptr) bool {
			var again bool
			again, eof = i.spool.take(int(fd))
			return !again
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			i.drain(raw)
		}
		if err != nil || eof != nil {
			return
		}
	}
}

// drain reads what is left in a FIFO that others keep open: at most what it
// can hold, since they may also keep writing.
func (i *input) drain(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		for range pipeMost / spliceMost {
			if again, err := i.spool.take(int(fd)); again || err != nil {
				return
			}
		}
	})
}

// newSource opens what src names, going on in the spools of base.
func newSource(src Source, log *Log, base func(stream string) string) (*openSource, error) {
	s := &openSource{Source: src}
	for stream, path := range src.outputs() {
		in, err := openInput(path, &spool{base: base(stream), stream: stream, log: log})
		if err != nil {
			s.release()
			return nil, err
		}
		s.inputs = append(s.inputs, in)
	}
	return s, nil
}

// run begins to read.
func (s *openSource) run() {
	for _, in := range s.inputs {
		s.copies.Go(func() {
			in.spool.resume()
			in.copy()
		})
	}
}

// stop ends the reading: when there are no other writers than us, or after
// grace. Then all that could be read is in the log or in the spools. When ctx
// ends first the reading goes on, and stop may be called again.
func (s *openSource) stop(ctx context.Context, grace time.Duration) error {
	for _, in := range s.inputs {
		_ = in.guard.Close() // again is no harm
	}
	done := make(chan struct{})
	go func() { s.copies.Wait(); close(done) }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	for _, in := range s.inputs {
		_ = in.pipe.SetReadDeadline(time.Unix(1, 0))
	}
	<-done
	return nil
}

// release gives the FIFOs and the spools' files back.
func (s *openSource) release() {
	for _, in := range s.inputs {
		_, _ = in.guard.Close(), in.pipe.Close()
		in.spool.close()
	}
}

// finish moves what is left into the log and removes the spools.
func (s *openSource) finish() error {
	var all error
	for _, in := range s.inputs {
		if err := in.spool.finish(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s of %s/%d: %w", in.spool.stream, s.Machine, s.Boot, err))
		}
	}
	return all
}
