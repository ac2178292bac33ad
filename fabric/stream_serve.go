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
	// pingEvery is how often the caller is sent a sign of life: so a
	// command that does not read its input does not outlive its caller by more.
	pingEvery = 15 * time.Second
	// lastWords is how long the caller may take to end its body once it was
	// sent the command's end, so that the connection can be used again.
	lastWords = time.Second
)

// ExecIO is a command's input and output while it runs.
type ExecIO struct {
	Start  ExecStart
	Stdin  io.Reader   // nil when there is none
	Stdout io.Writer   // an error of it means that the caller is gone
	Stderr io.Writer   // as Stdout
	Resize <-chan Size // the newest size of the terminal; nil without one
}

// Unbounded prepares the answer to a request whose body has no known length:
// otherwise a refusal would wait for the end of a body that may have none. Such a
// connection of HTTP/1 is not used again, since it is unknown where on it the
// next request would begin.
func Unbounded(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		BothWays(w, r)
	}
}

// BothWays prepares an answer that goes on while the request's body does. Over
// HTTP/2 every answer can. A connection of HTTP/1 is not used again, see
// Unbounded; and dropping a body that is still read ends everything after
// it there.
func BothWays(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).EnableFullDuplex() // not every writer can
}

// ServeExec serves MachineAttach: it reads the command, accepts it, and runs
// it with run. Its context ends when the caller leaves. run returns when the
// command has ended and all its output was written; it may leave Stdin unread.
// The handler checks the machine before, and answers an error with
// [WriteFailure].
func ServeExec(w http.ResponseWriter, r *http.Request, run func(context.Context, ExecIO) (bourse.Exit, error)) {
	control := http.NewResponseController(w)
	BothWays(w, r)
	throttle.StreamBody(r)
	frames := duplex.NewReader(r.Body)
	start, err := readStart(control, frames)
	if err != nil {
		WriteFailure(w, err)
		return
	}
	ctx, leave := context.WithCancelCause(r.Context())
	defer leave(nil)
	s := &serving{in: frames, out: duplex.NewWriter(w, control.Flush), leave: leave, resize: make(chan Size, 1)}
	accept(w, control)
	defer func() { // also when run panics
		_ = control.SetReadDeadline(time.Now().Add(lastWords))
		s.wg.Wait()
	}()
	exit, err := s.run(ctx, start, run)
	s.end(exit, err)
}

// accept sends the header of a reply that goes on while the body does.
func accept(w http.ResponseWriter, control *http.ResponseController) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // a writer that cannot flush sends it later
}

// startTime is how long a caller may take to send the first frame.
const startTime = 30 * time.Second

// readStart reads the first frame.
func readStart(control *http.ResponseController, frames *duplex.Reader) (ExecStart, error) {
	var start ExecStart
	if control.SetReadDeadline(time.Now().Add(startTime)) == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	kind, data, err := frames.Next()
	if err != nil {
		return start, bourse.Errorf(bourse.CodeInvalid, "the stream does not begin with a command: %w", err)
	}
	if kind != duplex.Start {
		return start, bourse.Errorf(bourse.CodeInvalid, "the stream begins with a frame of kind %d, not with a command", kind)
	}
	if err := json.Unmarshal(data, &start); err != nil {
		return start, bourse.Errorf(bourse.CodeInvalid, "the stream's command cannot be read: %w", err)
	}
	if len(start.Command) == 0 || start.Command[0] == "" {
		return start, bourse.Errorf(bourse.CodeInvalid, "the command is empty")
	}
	return start, nil
}

// serving is one command's streams, at its worker.
type serving struct {
	in     *duplex.Reader
	out    *duplex.Writer
	leave  context.CancelCauseFunc
	resize chan Size
	wg     sync.WaitGroup
}

// run runs the command with the streams going.
func (s *serving) run(ctx context.Context, start ExecStart, run func(context.Context, ExecIO) (bourse.Exit, error)) (bourse.Exit, error) {
	read, write := io.Pipe()
	command := ExecIO{Start: start, Stdout: s.output(duplex.Stdout), Stderr: s.output(duplex.Stderr)}
	if start.Stdin {
		command.Stdin = read
	} else {
		_ = read.Close() // what comes nevertheless is dropped
	}
	if start.Terminal != nil {
		command.Resize = s.resize
	}
	s.wg.Go(func() { s.listen(write) })
	alive, dead := context.WithCancel(ctx)
	defer dead()
	s.wg.Go(func() { s.ping(alive) })
	defer func() { _ = read.Close() }() // its writer stops waiting
	return run(ctx, command)
}

// end writes the last frame.
func (s *serving) end(exit bourse.Exit, err error) {
	kind, last := duplex.Exit, any(exit)
	if err != nil {
		kind, last = duplex.Failed, FailureOf(err)
	}
	text, err := json.Marshal(last)
	if err == nil {
		_, _ = s.out.Write(kind, text) // a caller that has left does not miss it
	}
}

// listen handles the caller's frames until their end.
func (s *serving) listen(stdin *io.PipeWriter) {
	for {
		kind, data, err := s.in.Next()
		if errors.Is(err, io.EOF) {
			_ = stdin.Close()
			return
		}
		if err == nil {
			err = s.hear(kind, data, stdin)
		}
		if err != nil {
			_ = stdin.CloseWithError(err)
			s.leave(bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", err))
			return
		}
	}
}

func (s *serving) hear(kind duplex.Kind, data []byte, stdin *io.PipeWriter) error {
	switch kind {
	case duplex.Stdin:
		_, _ = stdin.Write(data) // fails once the command reads no more: then it is dropped
	case duplex.StdinEnd:
		return stdin.Close()
	case duplex.Resize:
		size, err := duplex.SizeOf(data)
		if err != nil {
			return err
		}
		select { // only the newest counts
		case <-s.resize:
		default:
		}
		s.resize <- size // never blocks: no one else fills it
	case duplex.Ping:
	case duplex.Start, duplex.Stdout, duplex.Stderr, duplex.Exit, duplex.Failed:
		return bourse.Errorf(bourse.CodeInvalid, "a frame of kind %d is not for a worker", kind)
	}
	return nil
}

func (s *serving) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := s.out.Write(duplex.Ping, nil); err != nil {
				s.leave(bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", err))
				return
			}
		}
	}
}

// output is a command's output; when it cannot be written the command is not
// to go on.
func (s *serving) output(kind duplex.Kind) io.Writer { return &output{s.out.As(kind), s.leave} }

type output struct {
	to    io.Writer
	leave context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		o.leave(bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", err))
	}
	return n, err
}
