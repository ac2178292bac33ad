package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// brokenVersion is the version of machines whose check never passes.
const brokenVersion = "broken"

// runMachine serves the machine's version until it receives a signal. It then finishes the
// requests in progress.
func runMachine() error {
	version := os.Getenv(machineVariable)
	fmt.Fprintln(os.Stdout, "this is version", version)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version) })
	mux.HandleFunc("GET /healthy", func(w http.ResponseWriter, _ *http.Request) {
		if version == brokenVersion {
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { ended <- s.Shutdown(context.WithoutCancel(ctx)) })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}
