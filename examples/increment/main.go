// Command increment is a sample program for a warm task. It listens on $PORT and answers a payload such as 41 or
// {"N":41,"SleepSec":0.5} with the next number. It serves any number of concurrent calls, over HTTP or, with -frames,
// over the frame protocol (see config.task.protocol), which has less overhead.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/worker/warm"
)

func main() {
	frames := flag.Bool("frames", false, "serve frames instead of HTTP")
	flag.Parse()
	if err := run(*frames); err != nil {
		fmt.Fprintln(os.Stderr, "increment:", err)
		os.Exit(1)
	}
}

func run(frames bool) error {
	port := os.Getenv("PORT")
	if port == "" {
		return errors.New("the environment variable PORT is not set")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	if frames {
		return warm.Serve(ctx, ln, 0, answerCall)
	}
	server := &http.Server{Handler: http.HandlerFunc(answerRequest), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// payload is the decoded payload of a call.
type payload struct {
	N        int64
	SleepSec float64 // how long to wait before answering, in seconds
}

var errPayload = errors.New(`send a number, or {"N":41,"SleepSec":0.5}`)

// increment returns the answer to a call's payload. It returns early if ctx is done, which means that the caller has
// disconnected or the deadline has passed.
func increment(ctx context.Context, body []byte) ([]byte, error) {
	var in payload
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		err = json.Unmarshal(body, &in)
	} else {
		err = json.Unmarshal(body, &in.N)
	}
	if err != nil || !(in.SleepSec >= 0 && in.SleepSec <= 3600) {
		return nil, errPayload
	}
	if in.SleepSec > 0 {
		select {
		case <-time.After(time.Duration(in.SleepSec * float64(time.Second))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return append(strconv.AppendInt(nil, in.N+1, 10), '\n'), nil
}

// answerCall answers a call that was received as a frame.
func answerCall(ctx context.Context, call *warm.Call) warm.Answer {
	answer, err := increment(ctx, call.Payload)
	if err != nil {
		return warm.Answer{Status: http.StatusBadRequest, Type: "text/plain", Body: []byte(err.Error())}
	}
	return warm.Answer{Type: "application/json", Body: answer}
}

// answerRequest answers a call over HTTP.
func answerRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	var answer []byte
	if err == nil {
		answer, err = increment(r.Context(), body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // fails only if the caller has disconnected
}
