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
	headerTimeout = 10 * time.Second // time limit for receiving a request's header
	serverIdle    = 3 * clientIdle   // how long a connection may be idle; greater than the client's limit
	maxHeader     = 64 << 10         // maximum size of a request's header, in bytes
	grace         = 3 * time.Second  // how long requests in progress may take when the server stops
	maxStreams    = 1000             // maximum number of concurrent requests on one HTTP/2 connection
)

// Serve answers requests on ln, over TLS if config is not nil, until ctx is done. It then stops accepting requests, and
// gives requests in progress a few seconds to finish. After that, it cancels the contexts of the remaining requests and
// closes their connections. Serve returns once the listener and all connections are closed and the handlers of calls
// have returned. It returns nil if it stopped because ctx is done. Request bodies are subject to the limits of package
// throttle. Handlers of endless streams should return when their component stops.
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
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo), // for panics and failed TLS handshakes
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
		log.Warn("requests in progress aborted")
		cut(errClosing)
		err = server.Close() // the remaining connections are closed even if Shutdown failed
	}
	<-ended // the error is http.ErrServerClosed
	return err
}

var errClosing = errors.New("the server is closing")
