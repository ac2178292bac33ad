// Command hello is a small HTTP server that can run as a machine. It listens on $PORT. Each reply contains the
// machine's ID, the start time, and the number of requests so far. To deploy it with the fly.toml next to it, run: go
// build -o bin/hello ./examples/hello, then bourse deploy -c examples/hello/fly.toml.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run() error {
	port := os.Getenv("PORT")
	if port == "" {
		return errors.New("the environment variable PORT is not set")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: greeter(time.Now()), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	fmt.Println("listening on port", port)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Println("stopping")
		return server.Close()
	}
}

// greeter returns a handler that replies with a one-line greeting.
func greeter(since time.Time) http.Handler {
	var asked atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s from machine %s in region %s: pid %d, up since %s, request %d\n",
			cmp.Or(os.Getenv("GREETING"), "hello"), os.Getenv("FLY_MACHINE_ID"), os.Getenv("FLY_REGION"), os.Getpid(), since.Format("15:04:05.000"), asked.Add(1))
	})
}
