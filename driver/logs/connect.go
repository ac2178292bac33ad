package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// Timeouts, retry intervals and the number of attempts for calls to the keeper's process.
const (
	connectTimeout = 30 * time.Second
	minRetryDelay  = 20 * time.Millisecond
	maxRetryDelay  = 2 * time.Second
	callTries      = 3 // maximum number of attempts per call; each may reach a different process
	reapGrace      = time.Second
)

func errUnreached(cause error) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "cannot reach the keeper", Err: cause}
}

// ensure connects to the keeper's process unless it is already connected.
func (k *Keeper) ensure(ctx context.Context) error {
	select {
	case k.connecting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.connecting }()
	k.mu.Lock()
	has := k.lease != nil
	k.mu.Unlock()
	if err := context.Cause(k.ctx); err != nil {
		return errUnreached(err)
	}
	if has {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := k.connect(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || bourse.CodeOf(err) == bourse.CodeInvalid:
			return err
		case try == callTries: // earlier attempts may have reached processes that were about to exit
			return errUnreached(err)
		}
	}
}

// connect finds or starts the keeper's process. It sends all held sources to the process before it
// lets other goroutines use the connection.
func (k *Keeper) connect(ctx context.Context) error {
	l, err := k.prepare()
	if err != nil {
		return err
	}
	conn, err := k.connectOrSpawn(ctx, l)
	if errors.Is(err, errVersion) {
		// The old process exits without discarding anything, and a process from this release takes
		// over.
		k.cfg.Log.Info("replacing keeper from another release", "err", err)
		if err := endProcess(ctx, l); err != nil {
			return err
		}
		conn, err = k.connectOrSpawn(ctx, l)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	held := slices.Collect(maps.Values(k.held))
	k.mu.Unlock()
	for _, h := range held {
		if err := k.ask(ctx, &request{Op: opKeep, Source: h.Source}, nil); err != nil {
			if isUnreached(err) {
				return errors.Join(err, conn.Close())
			}
			k.cfg.Log.Warn("resume logging failed", "machine", h.Machine, "boot", h.Boot, "err", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return errors.Join(context.Cause(k.ctx), conn.Close())
	}
	k.lease = conn
	close(k.connected)
	k.work.Go(func() { k.watchProcess(conn) })
	return nil
}

// watchProcess waits for the keeper's process to exit. If there are held sources, it then starts
// another process.
func (k *Keeper) watchProcess(conn *net.UnixConn) {
	_, _ = io.Copy(io.Discard, conn) // returns when the process exits, because it does not send anything
	k.drop(conn)
	k.reap()
	k.mu.Lock()
	need, pid := len(k.held) > 0, k.pid
	k.mu.Unlock()
	if !need || k.ctx.Err() != nil {
		return
	}
	k.cfg.Log.Warn("keeper lost", "dir", k.cfg.Dir, "pid", pid)
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		err := k.ensure(k.ctx)
		if err == nil || k.ctx.Err() != nil {
			return
		}
		k.cfg.Log.Warn("connect to keeper failed", "dir", k.cfg.Dir, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-k.ctx.Done():
		}
		timer.Stop()
	}
}

// drop closes conn. If conn is still the current lease, drop also marks the keeper as disconnected.
func (k *Keeper) drop(conn *net.UnixConn) {
	if conn == nil {
		return
	}
	_ = conn.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease == conn {
		k.lease, k.connected = nil, make(chan struct{})
	}
}

// reap waits briefly for the keeper's process to exit. If this daemon started the process, reap
// then collects its exit status.
func (k *Keeper) reap() {
	ctx, cancel := context.WithTimeout(k.ctx, reapGrace)
	defer cancel()
	if companion.AwaitEnd(ctx, k.layout.lock()) != nil {
		return // it is still running
	}
	k.mu.Lock()
	child := k.child
	k.child = nil
	k.mu.Unlock()
	if child != nil {
		_, _ = child.Wait() // it has released its lock, so it is about to exit
	}
}

// call sends a request to the keeper's process. If the process dies before it answers, call sends
// the request to a new process. It is safe to repeat any request.
func (k *Keeper) call(ctx context.Context, req *request, news func()) error {
	for try := 1; ; try++ {
		if err := k.ensure(ctx); err != nil {
			return err
		}
		err := k.ask(ctx, req, news)
		if !isUnreached(err) || ctx.Err() != nil || try == callTries {
			return err
		}
		k.mu.Lock()
		lease := k.lease
		k.mu.Unlock()
		k.drop(lease) // watchProcess may not have noticed yet that the process has exited
	}
}

func isUnreached(err error) bool {
	_, ok := errors.AsType[*unreached](err)
	return ok
}

// unreached wraps an error if the process could not be reached or the connection broke.
type unreached struct{ error }

func (u *unreached) Unwrap() error { return u.error }

// ask sends one request on a new connection and waits for the final frame of the answer. It calls
// news for each frame before the final one.
func (k *Keeper) ask(ctx context.Context, req *request, news func()) error {
	lost := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if cause := context.Cause(k.ctx); cause != nil {
			err = cause
		}
		return &unreached{errUnreached(err)}
	}
	conn, err := companion.Dial(ctx, k.layout.run())
	if err != nil {
		return lost(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer context.AfterFunc(k.ctx, func() { _ = conn.Close() })()
	if err := companion.WriteFrame(conn, req); err != nil {
		return lost(err)
	}
	in := bufio.NewReader(conn)
	for {
		r := new(reply)
		if err := companion.ReadFrame(in, r); err != nil {
			return lost(err)
		}
		if !r.More {
			return r.Error.Err()
		}
		news()
	}
}

// watch asks the keeper's process to report new lines in a log, and calls news for each report. If
// the process is replaced, watch asks the new process. It returns nil when the machine is
// destroyed.
func (k *Keeper) watch(ctx context.Context, id bourse.MachineID, news func()) error {
	k.mu.Lock()
	r := k.removals[id]
	if r == nil {
		r = &removal{done: make(chan struct{})}
		k.removals[id] = r
	}
	r.refs++
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if r.refs--; r.refs == 0 && k.removals[id] == r {
			delete(k.removals, id)
		}
	}()
	news() // existing lines can be read even if no process is running
	for {
		k.mu.Lock()
		up := k.connected
		k.mu.Unlock()
		select {
		case <-up:
		case <-r.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-k.ctx.Done():
			return errUnreached(context.Cause(k.ctx))
		}
		if err := k.ask(ctx, &request{Op: opWatch, Machine: id}, news); err == nil {
			return nil
		}
		pause := time.NewTimer(minRetryDelay)
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-k.ctx.Done():
		}
		pause.Stop()
	}
}
