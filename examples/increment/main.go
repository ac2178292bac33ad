// Command increment is a task to keep warm: it listens on $PORT, and answers
// the payload {"N":41,"SleepSec":0.5}, or a number alone, with the number after
// it, as many at once as it is asked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "increment:", err)
		os.Exit(1)
	}
}

func run() error {
	port := os.Getenv("PORT")
	if port == "" {
		return errors.New("$PORT says where to listen, and it is not set")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: http.HandlerFunc(increment), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// payload is what increment is asked.
type payload struct {
	N        int64
	SleepSec float64 // before it answers
}

// increment answers one payload. The end of the request, when its caller has
// left or its time is over, ends the sleep.
func increment(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	var in payload
	if err == nil && json.Unmarshal(body, &in.N) != nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil || !(in.SleepSec >= 0 && in.SleepSec <= 3600) {
		http.Error(w, `send a number, or {"N":41,"SleepSec":0.5}`, http.StatusBadRequest)
		return
	}
	if in.SleepSec > 0 {
		select {
		case <-time.After(time.Duration(in.SleepSec * float64(time.Second))):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, in.N+1)
}
