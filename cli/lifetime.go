package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Lifetime returns the context of a server. With a life line it ends when
// standard input does, because then the process that started the server is gone.
// SIGHUP does not end it.
func (s *Shell) Lifetime(ctx context.Context, lifeLine bool) (context.Context, context.CancelFunc) {
	OutliveReaders()
	// A terminal that closes, or an operator who expects files to be read again: they are anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	if lifeLine {
		go func() { // ends with the process: a read of standard input cannot be called off
			_, _ = io.Copy(io.Discard, s.In)
			stop()
		}()
	}
	return ctx, stop
}

// ReadInput reads from standard input, or gives up when ctx ends. What it has
// begun to read is then lost, so it is for commands that end with ctx.
func (s *Shell) ReadInput(ctx context.Context, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1) // buffered: a reader that nothing waits for must not hang on the send
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

// OutliveReaders lets a write to a pipe without a reader fail,
// instead of ending the process: for a server, or a command that must not stop halfway.
// The signal is caught and not ignored, because machines would inherit that.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
