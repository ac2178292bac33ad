package logs

import (
	"context"
	"errors"
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

// input is one output stream of a machine, which the keeper reads.
type input struct {
	stream *Stream
	guard  *os.File // the keeper's own write end, which prevents reads from returning EOF
}

// openInput opens a FIFO. It returns CodeNotFound if the file does not exist, and CodeInvalid if
// it is not a FIFO.
func openInput(path, stream string, log *Log) (*input, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bourse.Errorf(bourse.CodeNotFound, "output %s does not exist", bourse.Quoted(path))
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeNamedPipe:
		return nil, bourse.Errorf(bourse.CodeInvalid, "output %s is not a FIFO", bourse.Quoted(path))
	}
	pipe, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	guard, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	return &input{stream: &Stream{Name: stream, Pipe: pipe, Log: log}, guard: guard}, nil
}

// newSource opens the FIFOs of src without reading from them.
func newSource(src Source, log *Log) (*openSource, error) {
	s := &openSource{Source: src}
	for stream, path := range src.outputs() {
		in, err := openInput(path, stream, log)
		if err != nil {
			s.release()
			return nil, err
		}
		s.inputs = append(s.inputs, in)
	}
	return s, nil
}

// run starts copying the outputs to the log.
func (s *openSource) run() {
	for _, in := range s.inputs {
		s.copies.Go(in.stream.Copy)
	}
}

// stop waits until no other process holds the FIFOs open for writing, or until grace has passed,
// and then stops reading. When it returns nil, all data that was in the FIFOs has been logged. If
// ctx is done first, reading continues, and stop may be called again.
func (s *openSource) stop(ctx context.Context, grace time.Duration) error {
	for _, in := range s.inputs {
		_ = in.guard.Close() // stop may have been called before
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
		_ = in.stream.Pipe.SetReadDeadline(time.Unix(1, 0))
	}
	<-done
	return nil
}

// release closes the FIFOs.
func (s *openSource) release() {
	for _, in := range s.inputs {
		_, _ = in.guard.Close(), in.stream.Pipe.Close() // the files may already be closed
	}
}
