package fabric

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/duplex"
)

var (
	routeExecStream = routeOf(PathExecStream)
	routeTunnel     = routeOf(PathTunnel)
)

// The words of PathExecStream; its frames are those of internal/duplex.
type (
	// ExecStart is what is to be run.
	ExecStart = duplex.Command
	// Terminal is the terminal that a command gets.
	Terminal = duplex.Terminal
	// Size is that of a terminal.
	Size = duplex.Size
	// Stream is the asking end of a command's streams.
	Stream = duplex.Stream
)

// ExecStream runs a command next to the machine's program, its input and output
// streaming, until it ends or ctx does. It returns when the worker has agreed
// to run it; its end is returned by [Stream.Copy]. The stream must be
// copied or closed.
func (c *Client) ExecStream(ctx context.Context, to bourse.Member, id bourse.MachineID, start ExecStart) (*Stream, error) {
	dial := func(body io.ReadCloser) (io.ReadCloser, error) { return c.PassExec(ctx, to, id, body) }
	return duplex.Open(start, dial, func(err error) error {
		if _, told := errors.AsType[*bourse.Error](err); told {
			return err
		}
		return Lost(ctx, to, err)
	})
}

// PassExec sends the frames of a stream as they are, for a server between
// its ends, and returns those of the reply. It owns frames, which it closes.
func (c *Client) PassExec(ctx context.Context, to bourse.Member, id bourse.MachineID, frames io.ReadCloser) (io.ReadCloser, error) {
	return c.both(ctx, to, ask{route: routeExecStream, id: string(id)}, frames)
}

// Tunnel connects to a TCP port of a machine until ctx ends. CloseWrite ends
// only what is sent. When the machine ends its side, Read returns io.EOF and
// nothing more arrives there. The tunnel must be closed.
func (c *Client) Tunnel(ctx context.Context, to bourse.Member, id bourse.MachineID, port uint16) (*Tunnel, error) {
	r, w := io.Pipe()
	reply, err := c.PassTunnel(ctx, to, id, port, r)
	if err != nil {
		return nil, err
	}
	return &Tunnel{ReadCloser: reply, body: w}, nil
}

// PassTunnel is [Client.Tunnel] for bytes that are a stream already. It owns
// sent, which it closes.
func (c *Client) PassTunnel(ctx context.Context, to bourse.Member, id bourse.MachineID, port uint16, sent io.ReadCloser) (io.ReadCloser, error) {
	query := url.Values{"port": {strconv.Itoa(int(port))}}
	return c.both(ctx, to, ask{route: routeTunnel, id: string(id), query: query}, sent)
}

// both opens a call whose body and reply go on side by side.
func (c *Client) both(ctx context.Context, to bourse.Member, a ask, body io.ReadCloser) (io.ReadCloser, error) {
	a.stream = body
	resp, err := c.open(ctx, to, a) //nolint:bodyclose // the caller does
	if err != nil {
		_ = body.Close() // not every error is the fabric's, which closes it too
		return nil, err
	}
	r := &received{ReadCloser: resp.Body, body: body, lost: func(err error) error { return Lost(ctx, to, err) }}
	r.stop = context.AfterFunc(ctx, func() { _ = r.end() }) // not every transport looks while it reads a body
	return r, nil
}

// received is a reply whose reads return the error of a break as it is.
type received struct {
	io.ReadCloser
	lost func(error) error
	body io.Closer   // of its request; nil when that is over
	stop func() bool // goes with body
}

// Close ends the call, and its body, which a fabric may still be reading.
func (r *received) Close() error {
	if r.stop != nil {
		r.stop()
	}
	return r.end()
}

func (r *received) end() error {
	if r.body != nil {
		_ = r.body.Close()
	}
	return r.ReadCloser.Close()
}

// Read reads on. The end is io.EOF, anything else that the answer was lost.
func (r *received) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.lost(err)
	}
	return n, err
}

// Tunnel is a connection to a port of a machine.
type Tunnel struct {
	io.ReadCloser
	body *io.PipeWriter
}

// Write sends bytes to the machine. It blocks while the machine does not read.
func (t *Tunnel) Write(p []byte) (int, error) { return t.body.Write(p) }

// CloseWrite ends what is sent; the machine sees the end of its input.
func (t *Tunnel) CloseWrite() error { return t.body.Close() }

// Close ends the connection. Repeated calls do no harm.
func (t *Tunnel) Close() error {
	_ = t.body.CloseWithError(http.ErrAbortHandler) // no effect after CloseWrite
	return t.ReadCloser.Close()
}
