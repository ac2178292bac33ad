package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// Stream is a listener for what is not HTTP: all that comes is for one port of one
// app.
type Stream struct {
	net.Listener
	App  bourse.AppName
	Port int // of the app's services
}

// target returns what a stream is for now.
func (e *Edge) target(s *Stream) (*route.Target, error) {
	for _, t := range e.Routes.App(s.App) {
		if s.Port < t.Port.First || s.Port > t.Port.Last {
			continue
		}
		if t.Port.Has(workload.HandlerHTTP) {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "port %d of app %s has handler http: --http and --https serve it", s.Port, s.App)
		}
		return t, nil
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "app %s serves nothing on port %d", s.App, s.Port)
}

// serveStreams passes on what comes until ctx ends.
func (e *Edge) serveStreams(ctx context.Context, s *Stream) {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errEnding)
	l := e.bounded(s.Listener)
	var streams sync.WaitGroup
	ended := make(chan struct{})
	go func() {
		e.accept(ctx, l, func(c net.Conn) { streams.Go(func() { e.serveStream(base, s, c) }) })
		close(ended)
	}()
	<-ctx.Done()
	_ = l.Close() // nothing more is taken
	<-ended
	done := make(chan struct{})
	go func() { streams.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(e.Limits.Drain):
		e.Log.Warn("streams are broken off", slog.String("listener", s.Addr().String()))
		cut(errEnding)
		<-done
	}
}

// accept takes connections until ctx ends and the listener is closed. It waits a
// little where the process has no more descriptors.
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
			e.Log.Warn("accept a connection failed", slog.String("listener", l.Addr().String()), slog.Any("err", err))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// serveStream passes one connection on.
func (e *Edge) serveStream(ctx context.Context, s *Stream, c net.Conn) {
	began := time.Now()
	var passed sums
	err := e.pass(ctx, s, c, &passed)
	_ = c.Close()
	log := e.Log.With(slog.String("app", string(s.App)), slog.Int("port", s.Port), slog.String("client", clientOf(c).String()),
		slog.String("machine", string(passed.machine)), slog.Int64("in", passed.in), slog.Int64("out", passed.out), slog.Duration("took", time.Since(began)))
	if err != nil {
		log.Info("stream", slog.Any("err", err))
		return
	}
	log.Info("stream")
}

// sums are what a stream has passed on.
type sums struct {
	machine bourse.MachineID
	in, out int64 // bytes from the client, and to it
}

// pass connects the client with a machine until both have ended.
func (e *Edge) pass(ctx context.Context, s *Stream, c net.Conn, passed *sums) error {
	t, err := e.target(s)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Read(nil); err != nil { // no PROXY header, where there must be one
		return bourse.Errorf(bourse.CodeInvalid, "PROXY header: %w", err)
	}
	client, outer, err := e.greet(ctx, t, c)
	if err != nil {
		e.part(c) // an alert of TLS, or PostgreSQL's words
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := e.reach(ctx, t)
	if err != nil {
		if outer.refuse(err) {
			e.part(c)
		}
		return err
	}
	defer m.end(nil)
	passed.machine = m.turn.Backend().Machine
	if t.Port.Has(workload.HandlerProxyProto) {
		if err := announce(m.conn, clientOf(c), c.LocalAddr(), t.Port.ProxyV2); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = m.conn.Close() })()
	return e.join(client, m.conn, passed)
}

// greet does what the port's handlers ask for before bytes pass. It returns the
// connection inside, and how the client is told that there is no machine.
func (e *Edge) greet(ctx context.Context, t *route.Target, raw net.Conn) (inside net.Conn, outer greeter, err error) {
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
		if c, err = askPostgres(c); err != nil {
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

// partBytes is how much is read of a client that was told to leave.
const partBytes = 256 << 10

// part ends what is sent to a client, and waits for it to leave: a connection that is
// closed while bytes of its client are unread is reset, and a reset overtakes the
// words of why.
func (e *Edge) part(c net.Conn) {
	if closeWrite(c) != nil || c.SetDeadline(time.Now().Add(e.Limits.Handshake)) != nil {
		return // it has left
	}
	_, _ = io.CopyN(io.Discard, c, partBytes)
}

// reached is a connection to a machine, with its place there.
type reached struct {
	conn net.Conn
	turn proxy.Turn
	done func()
}

// end ends the connection. failed says that its machine did.
func (m *reached) end(failed error) {
	if m.conn != nil {
		_ = m.conn.Close()
	}
	if m.done != nil {
		m.done()
	}
	m.turn.Done(failed)
}

// reach connects to a machine, and to another one where that fails: nothing has been
// sent yet.
func (e *Edge) reach(ctx context.Context, t *route.Target) (*reached, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limits.Ready, bourse.Errorf(bourse.CodeTimeout, "no machine was ready within %s", e.Limits.Ready))
	defer cancel()
	var want proxy.Want
	var last error
	for range e.Limits.Attempts {
		turn, err := e.Balance.Take(ctx, t, want)
		if err != nil {
			return nil, errors.Join(last, err)
		}
		m := &reached{turn: turn}
		if err = e.connect(ctx, t, m); err == nil {
			return m, nil
		}
		last = err
		if ctx.Err() != nil || bourse.CodeOf(err) == bourse.CodeRateLimited {
			err = context.Canceled // the client left, time is up, or there is no place: nothing is known of the machine
		}
		m.end(err)
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), last)
		}
		want.Not = append(want.Not, turn.Backend().Machine)
	}
	return nil, last
}

func (e *Edge) connect(ctx context.Context, t *route.Target, m *reached) error {
	b := m.turn.Backend()
	way, err := e.Ways.Use(ctx, b.Worker, b.Machine, b.Service.InternalPort, b.Service.Autostart)
	if err != nil {
		return err
	}
	if e.HoldOpen {
		m.done = way.Begin()
	}
	m.conn, err = proxy.Dial(ctx, e.Conns, proxy.Owner(t), way)
	return err
}

// join copies bytes both ways until both have ended. The end of one way is passed
// on, and the other goes on.
func (e *Edge) join(client, machine net.Conn, passed *sums) error {
	var in, out error
	idle := newIdle(e.Limits.Idle, func() { _, _ = client.Close(), machine.Close() })
	defer idle.stop()
	var copies sync.WaitGroup
	copies.Go(func() { passed.in, in = oneWay(machine, client, idle) })
	passed.out, out = oneWay(client, machine, idle)
	copies.Wait()
	if idle.expired() {
		return bourse.Errorf(bourse.CodeTimeout, "no bytes for %s", e.Limits.Idle)
	}
	return errors.Join(in, out)
}

// oneWay copies until from ends, and passes its end on. After an error both are
// closed: the other way has nothing to wait for.
func oneWay(to, from net.Conn, idle *idle) (n int64, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		k, err := from.Read(*buffer)
		if k > 0 {
			idle.moved()
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

// unlessClosed returns an error that is not that of a connection closed on this side.
func unlessClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
