package proxy

import (
	"cmp"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// hold has the attempt end when the body of its reply is closed.
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

// ending ends an attempt once.
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

// response is what the client is sent, counted.
type response struct {
	http.ResponseWriter
	stalled  time.Duration
	timed    bool      // HTTP/1: the write deadline is the connection's
	deadline time.Time // when it was set last

	status  int
	written int64
}

// Unwrap serves http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter. "100 Continue" is left to the server,
// which says it when the body is first read: that is once the machine has said it.
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

// Write implements http.ResponseWriter. A client that reads nothing for a while is
// left.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extendDeadline()
	n, err := w.ResponseWriter.Write(p)
	w.written += int64(n)
	return n, err
}

// begin has the reply take as long as it likes to begin: the connection may still
// have a deadline of the reply before it.
func (w *response) clearDeadline() {
	if w.timed {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// keepTime gives the client some time to read what is written next.
func (w *response) extendDeadline() {
	if now := time.Now(); w.timed && now.Sub(w.deadline) > w.stalled/8 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(w.stalled + w.stalled/8))
		w.deadline = now
	}
}

// statusLeft is how a request is logged whose client left.
const statusClientClosed = 499

// bufferSize is what is copied of a body at once.
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

// switched is the connection to a machine after a change of protocols, both ways.
// It copies with little memory, as most such connections are idle most of the time.
type upgradedConn struct {
	io.ReadWriteCloser
	*attemptEnd
	in, out atomic.Int64 // bytes, from the client and to it
	timer   *time.Timer  // nil: it may be idle for ever
}

// watch closes the connection once nothing has flowed for a while.
func (s *upgradedConn) watch(idle time.Duration) {
	var before int64
	var armed sync.Mutex // the timer is set when its function runs
	armed.Lock()
	defer armed.Unlock()
	s.timer = time.AfterFunc(idle, func() {
		armed.Lock()
		defer armed.Unlock()
		now := s.in.Load() + s.out.Load()
		if now == before {
			_ = s.ReadWriteCloser.Close() // both copies end
			return
		}
		before = now
		s.timer.Reset(idle)
	})
}

// firstBuffer is what a direction has while little flows.
const firstBuffer = 2 << 10

// WriteTo implements io.WriterTo: from the machine to the client.
func (s *upgradedConn) WriteTo(client io.Writer) (int64, error) {
	return pump(client, s.ReadWriteCloser, &s.out)
}

// ReadFrom implements io.ReaderFrom: from the client to the machine.
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

// CloseWrite tells the machine that the client sends no more.
func (s *upgradedConn) CloseWrite() error {
	if half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return s.ReadWriteCloser.Close()
}

// pump copies until the end, with a buffer that grows once it is filled.
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
