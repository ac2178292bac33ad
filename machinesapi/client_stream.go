package machinesapi

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

type (
	// ExecStart is what ExecStream is to run.
	ExecStart = duplex.Command
	// Terminal is the terminal that a command gets.
	Terminal = duplex.Terminal
	// TerminalSize is its size, in characters.
	TerminalSize = duplex.Size
	// ExecStream is a command that runs next to a machine's program. Write,
	// CloseWrite and Resize may be called while Copy, which must be called
	// once, reads the command's output and returns how it ended. Close kills a
	// command that still runs.
	ExecStream = duplex.Stream
)

// ExecStream runs a command next to a machine's program, its input and output
// going on as it runs, until it ends or ctx does. The stream must be copied or
// closed. Codes: invalid, not_found, failed_precondition, here or from Copy;
// and timeout from Copy when the stream breaks off.
func (c *Client) ExecStream(ctx context.Context, app bourse.AppName, id bourse.MachineID, start ExecStart) (*ExecStream, error) {
	k := call{method: http.MethodPost, path: machinePath(app, id, "exec", "stream")}
	dial := func(body io.ReadCloser) (io.ReadCloser, error) { return c.both(ctx, k, body) }
	return duplex.Open(start, dial, func(err error) error { return c.lost(ctx, k, err) })
}

// Tunnel connects to a TCP port of a machine, until ctx ends. The tunnel must
// be closed. Codes: invalid, not_found, failed_precondition (it does not run),
// unavailable (nothing listens there).
func (c *Client) Tunnel(ctx context.Context, app bourse.AppName, id bourse.MachineID, port uint16) (*Tunnel, error) {
	k := call{method: http.MethodPost, path: machinePath(app, id, "tunnel"), query: url.Values{"port": {strconv.Itoa(int(port))}}}
	r, w := io.Pipe()
	reply, err := c.both(ctx, k, r)
	if err != nil {
		return nil, err
	}
	return &Tunnel{ReadCloser: reply, body: w}, nil
}

// Tunnel is a connection to a port of a machine. When the machine ends its
// side, Read returns io.EOF and nothing more arrives there.
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
	_ = t.body.CloseWithError(errLeft) // no effect after CloseWrite
	return t.ReadCloser.Close()
}

var errLeft = errors.New("the stream was closed")

// both opens a call whose body is sent while its reply comes.
func (c *Client) both(ctx context.Context, k call, body io.ReadCloser) (io.ReadCloser, error) {
	k.body = body
	stop := context.AfterFunc(ctx, func() { _ = body.Close() }) // a transport of HTTP/1 waits for who reads it, also when ctx has ended
	resp, err := c.send(ctx, k)
	stop()
	if err == nil && resp.StatusCode > 299 {
		err = replyError(resp)
		_ = resp.Body.Close()
	}
	if err != nil {
		_ = body.Close()
		return nil, err
	}
	r := &received{ReadCloser: resp.Body, body: body}
	r.stop = context.AfterFunc(ctx, func() { _ = r.end() }) // a transport of HTTP/2 that reads body does not look
	return r, nil
}

// received is a reply whose end is that of its request's body, too.
type received struct {
	io.ReadCloser
	body io.Closer
	stop func() bool
}

// Close ends the call.
func (r *received) Close() error {
	r.stop()
	return r.end()
}

func (r *received) end() error {
	_ = r.body.Close() // a transport may still be reading it
	return r.ReadCloser.Close()
}
