package warm_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/warm"
)

// serve runs a program with handler h until the test ends, and returns its address.
func serve(t *testing.T, concurrency int, h warm.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- warm.Serve(ctx, ln, concurrency, h) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return ln.Addr().String()
}

// open connects to a program until the test ends.
func open(t *testing.T, address string) *warm.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := warm.NewConn(conn, 0)
	t.Cleanup(c.Close)
	return c
}

func soon(payload string) *warm.Call {
	return &warm.Call{Order: "01M7Y71X6AS59JBN7QNQFH8DEW", Deadline: time.Now().Add(10 * time.Second), Payload: []byte(payload)}
}

func TestCall(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), bourse.MaxPayload/16)
	c := open(t, serve(t, 1, func(ctx context.Context, call *warm.Call) warm.Answer {
		if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(call.Deadline) || ctx.Err() != nil {
			t.Errorf("context with deadline %s, %v", deadline, ctx.Err())
		}
		switch {
		case call.Order == "too-much":
			return warm.Answer{Body: append(call.Payload, 'x')}
		case call.Type == "":
			return warm.Answer{Body: call.Payload}
		}
		return warm.Answer{Status: 404, Type: call.Type, Body: []byte(call.Order)}
	}))
	deadline := time.Now().Add(10 * time.Second)
	for name, x := range map[string]struct {
		call warm.Call
		want warm.Answer
	}{
		"plain":           {warm.Call{Order: "o", Deadline: deadline, Payload: []byte("hi")}, warm.Answer{Status: 200, Body: []byte("hi")}},
		"nothing":         {warm.Call{Order: "o", Deadline: deadline}, warm.Answer{Status: 200}},
		"the largest":     {warm.Call{Order: "o", Deadline: deadline, Payload: big}, warm.Answer{Status: 200, Body: big}},
		"with a type":     {warm.Call{Order: "o", Deadline: deadline, Type: "text/plain; charset=utf-8"}, warm.Answer{Status: 404, Type: "text/plain; charset=utf-8", Body: []byte("o")}},
		"a large failure": {warm.Call{Order: "too-much", Deadline: deadline, Payload: big}, warm.Answer{Status: 500, Body: []byte("the program's answer exceeds its limits")}},
	} {
		got, err := c.Call(t.Context(), &x.call)
		if err != nil || got.Status != x.want.Status || got.Type != x.want.Type || !bytes.Equal(got.Body, x.want.Body) {
			t.Errorf("%s: %d %s, %d bytes, %v", name, got.Status, got.Type, len(got.Body), err)
		}
	}
	for name, call := range map[string]warm.Call{
		"no order": {Deadline: deadline}, "a newline in the order": {Order: "o\n", Deadline: deadline}, "a newline in the type": {Order: "o", Type: "a\nb", Deadline: deadline},
		"too large": {Order: "o", Deadline: deadline, Payload: append(big, 'x')},
	} {
		if _, err := c.Call(t.Context(), &call); !errors.As(err, new(warm.NotSent)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After Leave, a connection refuses new calls. It is closed once the calls in progress
// are answered.
func TestLeave(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	c := open(t, serve(t, 0, func(context.Context, *warm.Call) warm.Answer {
		close(arrived)
		<-release
		return warm.Answer{Body: []byte("late")}
	}))
	ended := make(chan string)
	go func() {
		a, err := c.Call(t.Context(), soon("x"))
		ended <- fmt.Sprint(string(a.Body), err)
	}()
	<-arrived
	c.Leave()
	if _, err := c.Call(t.Context(), soon("y")); !errors.As(err, new(warm.NotSent)) {
		t.Errorf("a new call: %v", err)
	}
	close(release)
	if got := <-ended; got != "late<nil>" {
		t.Errorf("the call in progress: %s", got)
	}
	<-c.Done()
}

// A connection is closed if it is idle, or if the rest of an answer does not arrive in
// time.
func TestTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		want  string // the error of the call; "" for none
		after time.Duration
	}{
		"idle":        {"DONE 1 200 0 -\n", "", 2 * time.Second},
		"half a line": {"DONE 1 2", "i/o timeout", 10 * time.Second},
		"half a body": {"DONE 1 200 5 -\nab", "i/o timeout", 10 * time.Second},
		"nothing":     {"", "deadline", time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				go func() {
					r := bufio.NewReader(far)
					_, _ = r.ReadString('\n')
					_, _ = io.WriteString(far, c.reply)
					_, _ = io.Copy(io.Discard, r) // wait until the connection is closed
					_ = far.Close()
				}()
				began := time.Now()
				conn := warm.NewConn(near, time.Second)
				_, err := conn.Call(t.Context(), &warm.Call{Order: "o", Deadline: began.Add(time.Minute)})
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("the call ended with %v, want %q", err, c.want)
				}
				<-conn.Done()
				if took := time.Since(began); took > c.after {
					t.Errorf("closed after %s, want %s", took, c.after)
				}
			})
		})
	}
}
