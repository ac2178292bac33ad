package proxy

import (
	"log/slog"
	"net/http"
	"time"
)

// Server returns an HTTP server with the limits of one that strangers talk to:
// HTTP/1.1, and HTTP/2 with TLS and without. It has no limit on how long a request
// or a reply takes: bodies have none as long as they move.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	var speaks http.Protocols
	speaks.SetHTTP1(true)
	speaks.SetHTTP2(true)
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &speaks,
		ReadHeaderTimeout: 20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     time.Minute,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what strangers send wrong is no news
	}
}
