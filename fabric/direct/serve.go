package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse/internal/throttle"
)

const (
	headerTimeout = 10 * time.Second // to send a request's header
	serverIdle    = 3 * clientIdle   // between requests; above what our own clients keep
	maxHeader     = 64 << 10         // bytes
	grace         = 3 * time.Second  // for requests in progress when the server is asked to end
	maxStreams    = 1000             // requests at once on one HTTP/2 connection
)

// Serve answers requests on ln, which it closes, until ctx ends; with config
// over TLS. Then it takes no more, allows those in progress a few seconds, ends
// the contexts of the rest and closes their connections; it returns when the
// listener and all connections are closed, nil when that was because of ctx; and
// when the handlers of calls have ended. Requests' bodies have the limits of
// package bodies.
// Handlers that stream forever should end with their own component.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config, log *slog.Logger) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errClosing)
	calls := newCalls(log)
	base = context.WithValue(base, callsKey{}, calls)
	defer calls.Close(errClosing)
	server := &http.Server{
		Handler:           throttle.NewBodies(0).Handler(h),
		TLSConfig:         config,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       serverIdle,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo), // handshakes of other programs, panics
	}
	ended := make(chan error, 1)
	go func() {
		if config != nil {
			ended <- server.ServeTLS(ln, "", "")
		} else {
			ended <- server.Serve(ln)
		}
	}()
	select {
	case err := <-ended:
		calls.Abort()
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	calls.Drain()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(last)
	if !calls.Wait(last) || errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests in progress are cut off")
		cut(errClosing)
		err = server.Close() // after Shutdown, even if that failed
	}
	<-ended // http.ErrServerClosed
	return err
}

var errClosing = errors.New("the server is closing")
