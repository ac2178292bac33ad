package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/duplex"
	"github.com/bourse-dev/bourse/internal/throttle"
)

const (
	// pingEvery is the interval between pings to the caller. A failed ping also reveals that the caller has disconnected,
	// so even a command that does not read its input is canceled soon afterward.
	pingEvery = 15 * time.Second
	// endTimeout is how long the server waits for the end of the caller's body after it has sent the command's result.
	// If the body ends in time, the connection can be reused.
	endTimeout = time.Second
)

// ExecIO contains the input and output of a running command.
type ExecIO struct {
	Start  ExecStart
	Stdin  io.Reader   // nil if there is no input
	Stdout io.Writer   // a write error means that the caller has disconnected
	Stderr io.Writer   // same as Stdout
	Resize <-chan Size // receives the latest size of the terminal; nil if there is no terminal
}

// PrepareUnboundedReply prepares the reply to a request whose body has no known length. Without this preparation, an
// error reply would wait for the end of the body, which may never come. If the request uses HTTP/1, its connection is
// not reused, because the server cannot know where the next request would begin.
func PrepareUnboundedReply(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		PrepareDuplexReply(w, r)
	}
}

// PrepareDuplexReply prepares a reply that is sent while the request's body is read. Over HTTP/2, no preparation is
// needed. If the request uses HTTP/1, its connection is not reused, for the reason given at PrepareUnboundedReply.
// Without PrepareDuplexReply, an HTTP/1 server would also discard the part of the body that has not been read when the
// reply begins.
func PrepareDuplexReply(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).EnableFullDuplex() // some ResponseWriters do not support this
}

// ServeExec serves MachineAttach. It reads the command, accepts it, and calls run with a context that is canceled when
// the caller disconnects. The run function must return once the command has ended and all its output has been written;
// it may leave Stdin unread. The handler must check the machine first and report errors with [WriteFailure].
func ServeExec(w http.ResponseWriter, r *http.Request, run func(context.Context, ExecIO) (bourse.Exit, error)) {
	control := http.NewResponseController(w)
	PrepareDuplexReply(w, r)
	throttle.StreamBody(r)
	frames := duplex.NewReader(r.Body)
	start, err := readStart(control, frames)
	if err != nil {
		WriteFailure(w, err)
		return
	}
	ctx, leave := context.WithCancelCause(r.Context())
	defer leave(nil)
	s := &execSession{in: frames, out: duplex.NewWriter(w, control.Flush), cancel: leave, resize: make(chan Size, 1)}
	accept(w, control)
	defer func() { // even if run panics
		_ = control.SetReadDeadline(time.Now().Add(endTimeout))
		s.wg.Wait()
	}()
	exit, err := s.run(ctx, start, run)
	s.end(exit, err)
}

// accept sends the reply's header, after which the reply's body can be sent while the request's body is still being
// read.
func accept(w http.ResponseWriter, control *http.ResponseController) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // a writer that cannot flush sends the header later
}

// startTimeout is how long a caller may take to send the first frame.
const startTimeout = 30 * time.Second

// readStart reads the first frame.
func readStart(control *http.ResponseController, frames *duplex.Reader) (ExecStart, error) {
	var start ExecStart
	if control.SetReadDeadline(time.Now().Add(startTimeout)) == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	kind, data, err := frames.Next()
	if err != nil {
		return start, bourse.Errorf(bourse.CodeInvalid, "the stream does not begin with a command: %w", err)
	}
	if kind != duplex.Start {
		return start, bourse.Errorf(bourse.CodeInvalid, "the stream begins with a frame of kind %d instead of a command", kind)
	}
	if err := json.Unmarshal(data, &start); err != nil {
		return start, bourse.Errorf(bourse.CodeInvalid, "decode the stream's command: %w", err)
	}
	if len(start.Command) == 0 || start.Command[0] == "" {
		return start, bourse.Errorf(bourse.CodeInvalid, "the command is empty")
	}
	return start, nil
}

// execSession is the worker's side of a running MachineAttach.
type execSession struct {
	in     *duplex.Reader
	out    *duplex.Writer
	cancel context.CancelCauseFunc
	resize chan Size
	wg     sync.WaitGroup
}

// run starts the goroutines for the command's streams, and then runs the command.
func (s *execSession) run(ctx context.Context, start ExecStart, run func(context.Context, ExecIO) (bourse.Exit, error)) (bourse.Exit, error) {
	read, write := io.Pipe()
	command := ExecIO{Start: start, Stdout: s.output(duplex.Stdout), Stderr: s.output(duplex.Stderr)}
	if start.Stdin {
		command.Stdin = read
	} else {
		_ = read.Close() // any input that the caller sends is discarded
	}
	if start.Terminal != nil {
		command.Resize = s.resize
	}
	s.wg.Go(func() { s.listen(write) })
	alive, dead := context.WithCancel(ctx)
	defer dead()
	s.wg.Go(func() { s.ping(alive) })
	defer func() { _ = read.Close() }() // unblocks the goroutine that writes to the pipe
	return run(ctx, command)
}

// end writes the last frame, which contains the command's result.
func (s *execSession) end(exit bourse.Exit, err error) {
	kind, last := duplex.Exit, any(exit)
	if err != nil {
		kind, last = duplex.Failed, FailureOf(err)
	}
	text, err := json.Marshal(last)
	if err == nil {
		_, _ = s.out.Write(kind, text) // fails only if the caller has disconnected
	}
}

// listen handles the caller's frames until they end.
func (s *execSession) listen(stdin *io.PipeWriter) {
	for {
		kind, data, err := s.in.Next()
		if errors.Is(err, io.EOF) {
			_ = stdin.Close()
			return
		}
		if err == nil {
			err = s.takeFrame(kind, data, stdin)
		}
		if err != nil {
			_ = stdin.CloseWithError(err)
			s.cancel(bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", err))
			return
		}
	}
}

func (s *execSession) takeFrame(kind duplex.Kind, data []byte, stdin *io.PipeWriter) error {
	switch kind {
	case duplex.Stdin:
		_, _ = stdin.Write(data) // fails if the command no longer reads its input; the data is then discarded
	case duplex.StdinEnd:
		return stdin.Close()
	case duplex.Resize:
		size, err := duplex.SizeOf(data)
		if err != nil {
			return err
		}
		select { // discard an earlier size that has not been received
		case <-s.resize:
		default:
		}
		s.resize <- size // does not block, because there is no other sender
	case duplex.Ping:
	case duplex.Start, duplex.Stdout, duplex.Stderr, duplex.Exit, duplex.Failed:
		return bourse.Errorf(bourse.CodeInvalid, "unexpected frame of kind %d", kind)
	}
	return nil
}

func (s *execSession) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := s.out.Write(duplex.Ping, nil); err != nil {
				s.cancel(bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", err))
				return
			}
		}
	}
}

// output returns a writer for one of a command's outputs. If a write fails, the
// command is canceled.
func (s *execSession) output(kind duplex.Kind) io.Writer { return &output{s.out.As(kind), s.cancel} }

type output struct {
	to     io.Writer
	cancel context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		o.cancel(bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", err))
	}
	return n, err
}
