package duplex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
)

// Stream is the asking end of a command's streams. Its input may be written by
// one goroutine while another reads its output.
type Stream struct {
	body  *io.PipeWriter // of the request
	reply io.ReadCloser
	in    *Writer
	out   *Reader
	lost  func(error) error
}

// Dial sends a request whose body is to be read from body, and returns its reply
// as soon as that begins.
type Dial func(body io.ReadCloser) (reply io.ReadCloser, err error)

// Open requests that a command is run. A break of the connection is passed to lost,
// which returns the error to return. Errors of dial are returned as they
// are.
func Open(start Command, dial Dial, lost func(error) error) (*Stream, error) {
	first, err := json.Marshal(start)
	if err != nil || len(first) > MaxFrame {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the command has more than %d bytes", int64(MaxFrame))
	}
	r, w := io.Pipe()
	s := &Stream{body: w, in: NewWriter(w, nil), lost: lost}
	begun := make(chan struct{})
	go func() { // the request's body is read before there is a reply, and after
		defer close(begun)
		_, _ = s.in.Write(Start, first) // fails only with the request
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

// Write sends input to the command. It blocks while the command does not read.
// After the command has ended it returns an error.
func (s *Stream) Write(p []byte) (int, error) { return s.in.As(Stdin).Write(p) }

// CloseWrite ends the command's input.
func (s *Stream) CloseWrite() error {
	_, err := s.in.Write(StdinEnd, nil)
	return err
}

// Resize changes the size of the command's terminal.
func (s *Stream) Resize(size Size) error {
	_, err := s.in.Write(Resize, size.Bytes())
	return err
}

// Copy writes the command's output to stdout and stderr, from the calling
// goroutine, until the command has ended, and returns how. An error of a writer
// ends the stream and is returned. It is called once.
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
			err = s.broken(fmt.Errorf("%w: kind %d in a reply", ErrFrame, kind))
		}
		if err != nil {
			return bourse.Exit{}, err
		}
	}
}

// end reads the last frame.
func (s *Stream) end(kind Kind, data []byte) (bourse.Exit, error) {
	_ = s.body.Close() // the reply is complete
	var exit bourse.Exit
	if kind == Exit {
		if err := json.Unmarshal(data, &exit); err != nil {
			return exit, s.broken(err)
		}
	} else {
		var f Failure
		if err := json.Unmarshal(data, &f); err != nil || f.Code == "" {
			return exit, s.broken(fmt.Errorf("%w: a failure without a reason", ErrFrame))
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

// Close ends the stream; a command that still runs is killed. Repeated calls do
// no harm.
func (s *Stream) Close() error {
	_ = s.body.CloseWithError(errLeft) // after the reply's end it is not read
	return s.reply.Close()
}

var errLeft = errors.New("the stream was closed")
