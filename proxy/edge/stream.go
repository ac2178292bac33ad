package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// Stream is a TCP listener whose connections are forwarded to one port of one app.
type Stream struct {
	net.Listener
	App  bourse.AppName
	Port int // port of the app's service
}

// target returns the target to which a stream's connections are currently forwarded.
func (e *Edge) target(s *Stream) (*route.Target, error) {
	for _, t := range e.Routes.App(s.App) {
		if s.Port < t.Port.First || s.Port > t.Port.Last {
			continue
		}
		if t.Port.Has(workload.HandlerHTTP) {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "port %d of app %s has the http handler: serve it with --http or --https", s.Port, s.App)
		}
		return t, nil
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "app %s does not serve port %d", s.App, s.Port)
}

// serveStreams accepts and forwards connections until ctx is done.
func (e *Edge) serveStreams(ctx context.Context, s *Stream) {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopping)
	l := e.limit(s.Listener)
	var streams sync.WaitGroup
	ended := make(chan struct{})
	go func() {
		e.accept(ctx, l, func(c net.Conn) { streams.Go(func() { e.serveStream(base, s, c) }) })
		close(ended)
	}()
	<-ctx.Done()
	_ = l.Close() // stops accepting connections
	<-ended
	done := make(chan struct{})
	go func() { streams.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(e.Limits.Drain):
		e.Log.Warn("streams in progress aborted", slog.String("listener", s.Addr().String()))
		cut(errStopping)
		<-done
	}
}

// accept calls serve for each new connection until ctx is done and the listener is closed. After an error, for
// example because too many files are open, it pauses before it continues.
func (e *Edge) accept(ctx context.Context, l net.Listener, serve func(net.Conn)) {
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			serve(c)
		case ctx.Err() != nil:
			return
		default:
			pause = min(max(5*time.Millisecond, 2*pause), time.Second)
			e.Log.Warn("accept connection failed", slog.String("listener", l.Addr().String()), slog.Any("err", err))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// serveStream forwards one connection and logs it.
func (e *Edge) serveStream(ctx context.Context, s *Stream, c net.Conn) {
	began := time.Now()
	var passed streamStats
	err := e.forward(ctx, s, c, &passed)
	_ = c.Close()
	log := e.Log.With(slog.String("app", string(s.App)), slog.Int("port", s.Port), slog.String("client", clientOf(c).String()),
		slog.String("machine", string(passed.machine)), slog.Int64("in", passed.in), slog.Int64("out", passed.out), slog.Duration("took", time.Since(began)))
	if err != nil {
		log.Info("stream", slog.Any("err", err))
		return
	}
	log.Info("stream")
}

// streamStats contains the data that is logged about a stream: its machine and byte counts.
type streamStats struct {
	machine bourse.MachineID
	in, out int64 // number of bytes received from the client and sent to it
}

// forward connects the client to a machine, and copies bytes in both directions until both have
// ended.
func (e *Edge) forward(ctx context.Context, s *Stream, c net.Conn, passed *streamStats) error {
	t, err := e.target(s)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Read(nil); err != nil { // fails if a required PROXY header is missing
		return bourse.Errorf(bourse.CodeInvalid, "PROXY header: %w", err)
	}
	client, outer, err := e.handshake(ctx, t, c)
	if err != nil {
		e.lingerClose(c) // so that the client can read the TLS alert or the PostgreSQL error
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := e.connectMachine(ctx, t)
	if err != nil {
		if outer.report(err) {
			e.lingerClose(c)
		}
		return err
	}
	defer m.close(nil)
	passed.machine = m.slot.Backend().Machine
	if t.Port.Has(workload.HandlerProxyProto) {
		if err := writeProxyHeader(m.conn, clientOf(c), c.LocalAddr(), t.Port.ProxyV2); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = m.conn.Close() })()
	return e.copyBoth(client, m.conn, passed)
}

// handshake performs the handshakes that the target's port requires. It returns a connection for the decrypted data,
// and a reporter that can send later errors to the client.
func (e *Edge) handshake(ctx context.Context, t *route.Target, raw net.Conn) (inside net.Conn, outer clientReporter, err error) {
	if err := raw.SetDeadline(time.Now().Add(e.Limits.Handshake)); err != nil {
		return nil, outer, err
	}
	defer func() {
		if err == nil {
			err = raw.SetDeadline(time.Time{})
		}
	}()
	c := raw
	switch {
	case t.Port.Has(workload.HandlerPGTLS):
		outer.postgres = true
		if c, err = acceptPostgresTLS(c); err != nil {
			return nil, outer, err
		}
	case !t.Port.Has(workload.HandlerTLS):
		outer.conn = c
		return c, outer, nil
	}
	over := tls.Server(c, e.tlsOfTarget(t))
	if err := over.HandshakeContext(ctx); err != nil {
		return nil, outer, bourse.Errorf(bourse.CodeInvalid, "TLS: %w", err)
	}
	outer.conn = over
	return over, outer, nil
}

// maxDiscard is the maximum number of bytes that the proxy reads from a refused client and discards.
const maxDiscard = 256 << 10

// lingerClose closes the sending side of a connection, and waits until the client disconnects. If the proxy closed the
// whole connection before reading all data from the client, the connection would be reset, and the client might not
// receive the error that was just sent.
func (e *Edge) lingerClose(c net.Conn) {
	if closeWrite(c) != nil || c.SetDeadline(time.Now().Add(e.Limits.Handshake)) != nil {
		return // the client has disconnected
	}
	_, _ = io.CopyN(io.Discard, c, maxDiscard)
}

// machineConn is a connection to a machine, together with the slot that it uses.
type machineConn struct {
	conn   net.Conn
	slot   proxy.Slot
	endUse func()
}

// close closes the connection and releases the slot. If the machine has failed, failed is the
// reason.
func (m *machineConn) close(failed error) {
	if m.conn != nil {
		_ = m.conn.Close()
	}
	if m.endUse != nil {
		m.endUse()
	}
	m.slot.Done(failed)
}

// connectMachine connects to one of the target's machines. If this fails, it tries other machines, which is safe
// because nothing has been sent yet.
func (e *Edge) connectMachine(ctx context.Context, t *route.Target) (*machineConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limits.Ready, bourse.Errorf(bourse.CodeTimeout, "no machine was ready within %s", e.Limits.Ready))
	defer cancel()
	var want proxy.Criteria
	var last error
	for range e.Limits.Attempts {
		slot, err := e.Balance.Acquire(ctx, t, want)
		if err != nil {
			return nil, errors.Join(last, err)
		}
		m := &machineConn{slot: slot}
		if err = e.dial(ctx, t, m); err == nil {
			return m, nil
		}
		last = err
		if ctx.Err() != nil || bourse.CodeOf(err) == bourse.CodeRateLimited {
			// This is not the machine's fault: the client has disconnected, the time limit has passed, or the
			// connection budget is used up.
			err = context.Canceled
		}
		m.close(err)
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), last)
		}
		want.Tried = append(want.Tried, slot.Backend().Machine)
	}
	return nil, last
}

func (e *Edge) dial(ctx context.Context, t *route.Target, m *machineConn) error {
	b := m.slot.Backend()
	upstream, err := e.Upstreams.Use(ctx, b.Worker, b.Machine, b.Service.InternalPort, b.Service.Autostart)
	if err != nil {
		return err
	}
	if e.HoldOpen {
		m.endUse = upstream.Begin()
	}
	m.conn, err = proxy.Dial(ctx, e.Conns, proxy.Owner(t), upstream)
	return err
}

// copyBoth copies bytes in both directions. When one direction ends, the other continues until it
// ends as well.
func (e *Edge) copyBoth(client, machine net.Conn, passed *streamStats) error {
	var in, out error
	idle := newIdle(e.Limits.Idle, func() { _, _ = client.Close(), machine.Close() })
	defer idle.stop()
	var copies sync.WaitGroup
	copies.Go(func() { passed.in, in = copyOneWay(machine, client, idle) })
	passed.out, out = copyOneWay(client, machine, idle)
	copies.Wait()
	if idle.expired() {
		return bourse.Errorf(bourse.CodeTimeout, "idle for %s", e.Limits.Idle)
	}
	return errors.Join(in, out)
}

// copyOneWay copies bytes from one connection to the other. At EOF, it closes the sending side of the destination.
// After an error, it closes both connections, because the other direction cannot continue either.
func copyOneWay(to, from net.Conn, idle *idleTimer) (n int64, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		k, err := from.Read(*buffer)
		if k > 0 {
			idle.touch()
			if _, err := to.Write((*buffer)[:k]); err != nil {
				_, _ = from.Close(), to.Close()
				return n, unlessClosed(err)
			}
			n += int64(k)
		}
		if isEnd(err) {
			return n, unlessClosed(closeWrite(to))
		}
		if err != nil {
			_, _ = from.Close(), to.Close()
			return n, unlessClosed(err)
		}
	}
}

// unlessClosed returns err, or nil if err means that the proxy itself closed the connection.
func unlessClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// bufferSize is the size of a stream's buffers, in bytes.
const bufferSize = 16 << 10

// buffers is a pool of copy buffers.
var buffers = sync.Pool{New: func() any { return new(make([]byte, bufferSize)) }}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

// idleTimer closes a stream that has not transferred any bytes for some time.
type idleTimer struct {
	after      time.Duration
	timer      *time.Timer
	last       atomic.Int64 // when bytes were last transferred, as a duration since began
	began      time.Time
	hasExpired atomic.Bool
}

// newIdle returns a timer that calls end once no bytes have been transferred for the given duration. If the duration is
// 0, it never calls end.
func newIdle(after time.Duration, end func()) *idleTimer {
	i := &idleTimer{after: after, began: time.Now()}
	if after <= 0 {
		return i
	}
	i.timer = time.AfterFunc(after, func() {
		if rest := after - (time.Since(i.began) - time.Duration(i.last.Load())); rest > 0 {
			i.timer.Reset(rest)
			return
		}
		i.hasExpired.Store(true)
		end()
	})
	return i
}

func (i *idleTimer) touch() {
	if i.timer != nil {
		i.last.Store(int64(time.Since(i.began)))
	}
}

func (i *idleTimer) expired() bool { return i.hasExpired.Load() }

func (i *idleTimer) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}
