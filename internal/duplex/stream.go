package duplex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
)

// Stream is the client's end of a running command. One goroutine may write input while another one
// reads output.
type Stream struct {
	body  *io.PipeWriter // writing end of the request's body
	reply io.ReadCloser
	in    *Writer
	out   *Reader
	lost  func(error) error
}

// Dial sends a request with the given body. It returns the reply's body as soon as the reply begins.
type Dial func(body io.ReadCloser) (reply io.ReadCloser, err error)

// Open sends a request to run a command. It returns dial's errors unchanged. If the connection breaks later, the
// stream's methods pass the error to lost, and return the error that lost returns.
func Open(start Command, dial Dial, lost func(error) error) (*Stream, error) {
	first, err := json.Marshal(start)
	if err != nil || len(first) > MaxFrame {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the command exceeds %d bytes", int64(MaxFrame))
	}
	r, w := io.Pipe()
	s := &Stream{body: w, in: NewWriter(w, nil), lost: lost}
	begun := make(chan struct{})
	go func() { // in a goroutine, because dial reads the request's body, possibly even after the reply has begun
		defer close(begun)
		_, _ = s.in.Write(Start, first) // fails only if the request fails
	}()
	s.reply, err = dial(r)
	if err != nil {
		_ = r.Close()
		<-begun
		return nil, err
	}
	<-begun
	s.out = NewReader(s.reply)
	return s, nil
}

// Write sends input to the command. It blocks while the command does not read, and
// returns an error after the command has exited.
func (s *Stream) Write(p []byte) (int, error) { return s.in.As(Stdin).Write(p) }

// CloseWrite closes the command's input.
func (s *Stream) CloseWrite() error {
	_, err := s.in.Write(StdinEnd, nil)
	return err
}

// Resize changes the size of the command's terminal.
func (s *Stream) Resize(size Size) error {
	_, err := s.in.Write(Resize, size.Bytes())
	return err
}

// Copy writes the command's output to stdout and stderr until the command exits, and returns its exit status. If
// the exit status is unknown, or a write to stdout or stderr fails, Copy closes the stream and returns the
// error. Copy must be called only once.
func (s *Stream) Copy(stdout, stderr io.Writer) (bourse.Exit, error) {
	defer func() { _ = s.Close() }()
	for {
		kind, data, err := s.out.Next()
		if err != nil {
			return bourse.Exit{}, s.broken(err)
		}
		switch kind {
		case Stdout:
			_, err = stdout.Write(data)
		case Stderr:
			_, err = stderr.Write(data)
		case Ping:
		case Exit, Failed:
			return s.end(kind, data)
		case Start, Stdin, StdinEnd, Resize:
			err = s.broken(fmt.Errorf("%w: unexpected frame of kind %d in a reply", ErrFrame, kind))
		}
		if err != nil {
			return bourse.Exit{}, err
		}
	}
}

// end decodes the last frame of a reply, which is an Exit or a Failed.
func (s *Stream) end(kind Kind, data []byte) (bourse.Exit, error) {
	_ = s.body.Close() // the reply has ended
	var exit bourse.Exit
	if kind == Exit {
		if err := json.Unmarshal(data, &exit); err != nil {
			return exit, s.broken(err)
		}
	} else {
		var f Failure
		if err := json.Unmarshal(data, &f); err != nil || f.Code == "" {
			return exit, s.broken(fmt.Errorf("%w: a Failed frame without a code", ErrFrame))
		}
		return exit, &bourse.Error{Code: f.Code, Message: f.Message}
	}
	return exit, nil
}

func (s *Stream) broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return s.lost(err)
}

// Close closes the stream. If the command is still running, it is killed. Further calls have no
// effect.
func (s *Stream) Close() error {
	_ = s.body.CloseWithError(errClosed) // the body is not read after the reply has ended
	return s.reply.Close()
}

var errClosed = errors.New("the stream was closed")
