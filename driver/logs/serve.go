package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// accept serves connections until ctx is done.
func (k *server) accept(ctx context.Context, l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			k.log.Warn("accept connection failed", "err", err)
			time.Sleep(10 * time.Millisecond) // probably out of file descriptors
			continue
		}
		k.work.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			if err := k.serveConn(ctx, conn); err != nil && ctx.Err() == nil {
				k.log.Info("connection ended", "err", err)
			}
		})
	}
}

// serveConn reads and handles a connection's single request. If the other side closes the connection or
// dies, the request is canceled.
func (k *server) serveConn(ctx context.Context, conn *net.UnixConn) error {
	if err := companion.CheckPeer(conn); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	req := new(request)
	if err := companion.ReadFrame(in, req); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.work.Go(func() {
		_, _ = io.Copy(io.Discard, in) // the client does not send anything else, so this returns when it disconnects
		cancel()
	})
	send := func(r *reply) error {
		_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
		return companion.WriteFrame(conn, r)
	}
	return k.handle(ctx, req, send)
}

func (k *server) handle(ctx context.Context, req *request, send func(*reply) error) error {
	var err error
	switch req.Op {
	case opHello:
		return k.hello(ctx, req, send)
	case opKeep:
		err = k.keep(ctx, req.Source)
	case opDone:
		err = k.done(ctx, req.Source)
	case opDestroy:
		err = k.destroy(ctx, req.Machine)
	case opWatch:
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		err = k.watch(watching, req.Machine, func() {
			if send(&reply{More: true}) != nil {
				cancel()
			}
		})
	case opEnd:
		err = send(&reply{})
		k.stop()
		return err
	default:
		err = bourse.Errorf(bourse.CodeInvalid, "unknown operation %s", bourse.Quoted(string(req.Op)))
	}
	return send(&reply{Error: companion.ErrorOf(err)})
}

// hello answers a daemon's hello and applies the daemon's settings. It then keeps the connection open
// until the daemon or this process exits.
func (k *server) hello(ctx context.Context, req *request, send func(*reply) error) error {
	if err := send(&reply{Version: protocolVersion, PID: os.Getpid()}); err != nil || req.Version != protocolVersion {
		return err
	}
	k.mu.Lock()
	k.settings = req.Settings
	machines := slices.Collect(maps.Values(k.machines))
	k.mu.Unlock()
	for _, m := range machines {
		m.log.Configure(req.Settings.Bytes, req.Settings.Files)
	}
	<-ctx.Done()
	return nil
}

// stop makes the process exit. It may be called repeatedly.
func (k *server) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ending {
		k.ending = true
		close(k.exit)
	}
}
