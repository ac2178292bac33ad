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
	// ExecStart specifies the command to run.
	ExecStart = duplex.Command
	// Terminal describes the terminal for a command.
	Terminal = duplex.Terminal
	// TerminalSize is the size of a terminal, in characters.
	TerminalSize = duplex.Size
	// ExecStream is a command that runs in a machine, alongside its program. Copy reads the command's output and
	// returns how the command exited. It must be called at most once. Write, CloseWrite and Resize may be called while
	// Copy runs. Close kills the command if it is still running.
	ExecStream = duplex.Stream
)

// ExecStream runs a command in a machine, alongside its program, and streams the command's input
// and output. The command is killed when ctx is done. The caller must call Copy or Close on the
// stream. Errors, from ExecStream or from Copy: invalid, not_found, failed_precondition; from Copy
// also timeout (the stream broke).
func (c *Client) ExecStream(ctx context.Context, app bourse.AppName, id bourse.MachineID, start ExecStart) (*ExecStream, error) {
	k := call{method: http.MethodPost, path: machinePath(app, id, "exec", "stream")}
	dial := func(body io.ReadCloser) (io.ReadCloser, error) { return c.openDuplex(ctx, k, body) }
	return duplex.Open(start, dial, func(err error) error { return c.noReply(ctx, k, err) })
}

// Tunnel connects to a TCP port of a machine. The connection is closed when ctx is done. The caller
// must close the tunnel. Errors: invalid, not_found, failed_precondition (the machine is not
// running), unavailable (nothing listens on the port).
func (c *Client) Tunnel(ctx context.Context, app bourse.AppName, id bourse.MachineID, port uint16) (*Tunnel, error) {
	k := call{method: http.MethodPost, path: machinePath(app, id, "tunnel"), query: url.Values{"port": {strconv.Itoa(int(port))}}}
	r, w := io.Pipe()
	reply, err := c.openDuplex(ctx, k, r)
	if err != nil {
		return nil, err
	}
	return &Tunnel{ReadCloser: reply, body: w}, nil
}

// Tunnel is a connection to a machine's port. When the machine closes its side, Read returns io.EOF and later writes
// are discarded.
type Tunnel struct {
	io.ReadCloser
	body *io.PipeWriter
}

// Write sends bytes to the machine. It blocks if the machine does not read them.
func (t *Tunnel) Write(p []byte) (int, error) { return t.body.Write(p) }

// CloseWrite closes the sending side of the connection. The machine then reads EOF.
func (t *Tunnel) CloseWrite() error { return t.body.Close() }

// Close closes the connection. It may be called repeatedly.
func (t *Tunnel) Close() error {
	_ = t.body.CloseWithError(errClosed) // has no effect after CloseWrite
	return t.ReadCloser.Close()
}

var errClosed = errors.New("the stream was closed")

// openDuplex makes a call whose body is sent while its reply arrives.
func (c *Client) openDuplex(ctx context.Context, k call, body io.ReadCloser) (io.ReadCloser, error) {
	k.body = body
	// An HTTP/1 transport keeps waiting for a read of the body after ctx is done.
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
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
	r.stop = context.AfterFunc(ctx, func() { _ = r.end() }) // an HTTP/2 transport that is reading the body does not check ctx
	return r, nil
}

// received is the body of a reply. Closing it also closes the body of the request.
type received struct {
	io.ReadCloser
	body io.Closer
	stop func() bool
}

// Close ends the call by closing both bodies.
func (r *received) Close() error {
	r.stop()
	return r.end()
}

func (r *received) end() error {
	_ = r.body.Close() // a transport may still be reading the request's body
	return r.ReadCloser.Close()
}
