package proxy

import (
	"cmp"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// trackReply wraps the reply's body so that the attempt ends when the body is closed.
func (p *Proxy) trackReply(x *exchange, t *attempt, resp *http.Response) {
	e := &attemptEnd{request: &x.request, t: t}
	if both, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		s := &upgradedConn{ReadWriteCloser: both, attemptEnd: e}
		if !p.HoldUpgraded {
			t.endUse()
			t.endUse = nil
		}
		if idle := cmp.Or(x.target.Port.HTTP.IdleTimeout, p.Limits.Idle); idle > 0 {
			s.watch(idle)
		}
		x.upgraded, x.reply, resp.Body = s, s, s
		return
	}
	r := &replyBody{ReadCloser: resp.Body, attemptEnd: e}
	x.reply, resp.Body = r, r
}

// attemptEnd ends an attempt exactly once.
type attemptEnd struct {
	once    sync.Once
	request *request
	t       *attempt
	err     error
}

func (e *attemptEnd) end() { e.once.Do(func() { e.t.done(backendError(e.request, e.t, e.err)) }) }

// replyBody is the body of a machine's reply.
type replyBody struct {
	io.ReadCloser
	*attemptEnd
}

// Read implements io.Reader.
func (r *replyBody) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// Close implements io.Closer.
func (r *replyBody) Close() error {
	err := r.ReadCloser.Close()
	r.end()
	return err
}

// response is the reply to the client. It records the reply's status, and counts the bytes of the body.
type response struct {
	http.ResponseWriter
	stalled  time.Duration
	timed    bool      // the client uses HTTP/1, whose connections have a single write deadline
	deadline time.Time // when the deadline was last set

	status  int
	written int64
}

// Unwrap returns the wrapped ResponseWriter, for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It drops a machine's "100 Continue", because the HTTP server sends its
// own when the body is first read.
func (w *response) WriteHeader(status int) {
	if status == http.StatusContinue {
		return
	}
	if w.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
		w.extendDeadline()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It fails if the client takes too long to read.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extendDeadline()
	n, err := w.ResponseWriter.Write(p)
	w.written += int64(n)
	return n, err
}

// clearDeadline removes the write deadline that an earlier reply has set on the same connection, because it would
// limit the time until this reply begins.
func (w *response) clearDeadline() {
	if w.timed {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// extendDeadline extends the write deadline before a write, to give the client more time to read.
func (w *response) extendDeadline() {
	if now := time.Now(); w.timed && now.Sub(w.deadline) > w.stalled/8 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(w.stalled + w.stalled/8))
		w.deadline = now
	}
}

// statusClientClosed is the status that is logged if the client has disconnected.
const statusClientClosed = 499

// bufferSize is the size of the buffers for copying bodies, in bytes.
const bufferSize = 32 << 10

// buffers implements httputil.BufferPool.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}

// upgradedConn is the connection to a machine after a protocol upgrade. It begins with small buffers, because such
// connections are usually idle.
type upgradedConn struct {
	io.ReadWriteCloser
	*attemptEnd
	in, out atomic.Int64 // number of bytes received from the client and sent to it
	timer   *time.Timer  // nil: there is no idle timeout
}

// watch closes the connection once no bytes have flowed in either direction for the duration idle.
func (s *upgradedConn) watch(idle time.Duration) {
	var before int64
	var armed sync.Mutex // held until timer is set, so that the callback cannot run before that
	armed.Lock()
	defer armed.Unlock()
	s.timer = time.AfterFunc(idle, func() {
		armed.Lock()
		defer armed.Unlock()
		now := s.in.Load() + s.out.Load()
		if now == before {
			_ = s.ReadWriteCloser.Close() // ends the copying in both directions
			return
		}
		before = now
		s.timer.Reset(idle)
	})
}

// firstBuffer is the initial size, in bytes, of the buffer for each direction.
const firstBuffer = 2 << 10

// WriteTo implements io.WriterTo. It copies data from the machine to the client.
func (s *upgradedConn) WriteTo(client io.Writer) (int64, error) {
	return pump(client, s.ReadWriteCloser, &s.out)
}

// ReadFrom implements io.ReaderFrom. It copies data from the client to the machine.
func (s *upgradedConn) ReadFrom(client io.Reader) (int64, error) {
	return pump(s.ReadWriteCloser, client, &s.in)
}

// Close implements io.Closer.
func (s *upgradedConn) Close() error {
	if s.timer != nil {
		s.timer.Stop()
	}
	err := s.ReadWriteCloser.Close()
	s.end()
	return err
}

// CloseWrite closes the sending side of the connection to the machine.
func (s *upgradedConn) CloseWrite() error {
	if half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return s.ReadWriteCloser.Close()
}

// pump copies data until EOF, and adds the number of copied bytes to count. Once the data fills the first buffer, pump
// switches to a larger one.
func pump(to io.Writer, from io.Reader, count *atomic.Int64) (total int64, err error) {
	buf := make([]byte, firstBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
			count.Add(int64(n))
		}
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		case n == len(buf) && n < bufferSize:
			buf = make([]byte, bufferSize)
		}
	}
}
