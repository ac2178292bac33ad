package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// lifetime gives the context of a server. With a life line it ends when
// standard input does, because then whoever started the server is gone.
func (s *shell) lifetime(ctx context.Context, lifeLine bool) (context.Context, context.CancelFunc) {
	outliveReaders()
	ctx, stop := context.WithCancel(ctx)
	if lifeLine {
		go func() { // ends with the process: a read of standard input cannot be called off
			_, _ = io.Copy(io.Discard, s.In)
			stop()
		}()
	}
	return ctx, stop
}

// input reads from standard input, or gives up when ctx ends. What it has
// begun to read is then lost, so it is for commands that end with ctx.
func (s *shell) input(ctx context.Context, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1) // buffered: a reader nobody waits for must not hang on the send
	go func() {
		data, err := read(s.In)
		got <- result{data, err}
	}()
	select {
	case r := <-got:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// outliveReaders lets a write to a pipe that nobody reads any more fail,
// instead of ending the process: a server has better to do than to be read.
// The signal is caught and not ignored, because machines would inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
