package warm_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/warm"
)

// serve runs a program until the test ends, and returns where it listens.
func serve(t *testing.T, concurrency int, h warm.Handler) string {
	t.Helper()
	address, _ := serveUntil(t, concurrency, h)
	return address
}

// serveUntil is serve, and also returns a function that ends the program earlier.
func serveUntil(t *testing.T, concurrency int, h warm.Handler) (string, context.CancelFunc) {
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
			t.Errorf("the program ended with %v", err)
		}
	})
	return ln.Addr().String(), stop
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

func TestACallAndItsAnswer(t *testing.T) {
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
		"plain":        {warm.Call{Order: "o", Deadline: deadline, Payload: []byte("hi")}, warm.Answer{Status: 200, Body: []byte("hi")}},
		"nothing":      {warm.Call{Order: "o", Deadline: deadline}, warm.Answer{Status: 200}},
		"the largest":  {warm.Call{Order: "o", Deadline: deadline, Payload: big}, warm.Answer{Status: 200, Body: big}},
		"with a type":  {warm.Call{Order: "o", Deadline: deadline, Type: "text/plain; charset=utf-8"}, warm.Answer{Status: 404, Type: "text/plain; charset=utf-8", Body: []byte("o")}},
		"a large fail": {warm.Call{Order: "too-much", Deadline: deadline, Payload: big}, warm.Answer{Status: 500, Body: []byte("the program's answer is not in its bounds")}},
	} {
		got, err := c.Call(t.Context(), &x.call)
		if err != nil || got.Status != x.want.Status || got.Type != x.want.Type || !bytes.Equal(got.Body, x.want.Body) {
			t.Errorf("%s: %d %s, %d bytes, %v", name, got.Status, got.Type, len(got.Body), err)
		}
	}
	for name, call := range map[string]warm.Call{
		"no order": {Deadline: deadline}, "a line in the order": {Order: "o\n", Deadline: deadline}, "a line in the type": {Order: "o", Type: "a\nb", Deadline: deadline},
		"too large": {Order: "o", Deadline: deadline, Payload: append(big, 'x')},
	} {
		if _, err := c.Call(t.Context(), &call); !errors.As(err, new(warm.NotSent)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many callers with payloads of all sizes, some of which cancel or run out of
// time, while the program answers in any order and ends at last, or its
// connection does. Each gets its own answer, or one of the errors that there are;
// no payload arrives that is reported as not sent; the handler of an abandoned
// call sees its end.
func TestManyCallers(t *testing.T) {
	const callers, each, rounds = 16, 150, 4
	var arrived sync.Map
	echo := func(ctx context.Context, call *warm.Call) warm.Answer {
		if _, twice := arrived.LoadOrStore(call.Order, true); twice {
			t.Errorf("call %s arrived twice", call.Order)
		}
		if len(call.Payload)%7 == 0 { // until it is abandoned
			<-ctx.Done()
		}
		return warm.Answer{Type: call.Type, Body: append([]byte(call.Order+" "), call.Payload...)}
	}
	var ends [4]atomic.Int64
	for round := range rounds {
		address, stop := serveUntil(t, 0, echo)
		c := open(t, address)
		var group sync.WaitGroup
		for n := range uint64(callers) {
			rng := rand.New(rand.NewPCG(n, 3))
			group.Go(func() {
				for range each {
					order := string(bourse.NewOrderID())
					end := chaoticCall(t, c, rng, order)
					ends[end].Add(1)
					if _, came := arrived.Load(order); end == notSent && came {
						t.Errorf("call %s was not sent, and arrived", order)
					}
				}
			})
		}
		group.Go(func() {
			for ends[answered].Load() < callers*each/4 {
				time.Sleep(time.Millisecond)
			}
			if round%2 == 0 {
				c.Close()
			} else {
				stop() // the program ends
			}
		})
		group.Wait()
		ends[answered].Store(0)
	}
	t.Logf("%d given up, %d broken, %d not sent", ends[givenUp].Load(), ends[broken].Load(), ends[notSent].Load())
}

const (
	answered = iota
	givenUp
	broken
	notSent
)

// chaoticCall makes a random call and returns how it ended.
func chaoticCall(t *testing.T, c *warm.Conn, rng *rand.Rand, order string) int {
	payload := make([]byte, rng.IntN(1<<rng.IntN(17)))
	call := warm.Call{Order: order, Payload: payload, Deadline: time.Now().Add(10 * time.Second)}
	endless := len(payload)%7 == 0
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	left := errors.New("left")
	switch {
	case endless && rng.IntN(2) == 0:
		call.Deadline = time.Now().Add(time.Duration(rng.IntN(3)) * time.Millisecond)
	case endless || rng.IntN(20) == 0:
		time.AfterFunc(time.Duration(rng.IntN(3))*time.Millisecond, func() { leave(left) })
	}
	a, err := c.Call(ctx, &call)
	unsent := errors.As(err, new(warm.NotSent))
	switch {
	case err == nil:
		if want := order + " "; endless || string(a.Body) != want+string(payload) {
			t.Errorf("an answer of %d bytes, %.40q, to %d bytes", len(a.Body), a.Body, len(payload))
		}
		return answered
	case unsent:
		return notSent
	case errors.Is(err, left), errors.Is(err, context.DeadlineExceeded) && time.Now().After(call.Deadline):
		return givenUp
	}
	if !c.Ended() {
		t.Errorf("the connection is whole, and the call ended with %v", err)
	}
	return broken
}

// A program that reads nothing: calls end at their deadlines, also those that
// find no space, and of these not a byte has left.
func TestAProgramThatDoesNotRead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	c := open(t, ln.Addr().String()) // no accept is called
	var group sync.WaitGroup
	for n := range 32 {
		group.Go(func() {
			call := warm.Call{Order: fmt.Sprint(n), Deadline: time.Now().Add(50 * time.Millisecond), Payload: make([]byte, bourse.MaxPayload)}
			if _, err := c.Call(t.Context(), &call); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d ended with %v", n, err)
			}
			if late := time.Since(call.Deadline); late > 5*time.Second {
				t.Errorf("call %d ended %s after its deadline", n, late)
			}
		})
	}
	group.Wait()
}

// A connection after Leave answers the calls in progress, takes no new ones, and
// is then closed.
func TestAConnectionThatIsLeft(t *testing.T) {
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

// In virtual time, over a pipe: a connection without calls is closed, and so
// is one on which the rest of an answer does not come.
func TestConnectionsThatAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		want  string // how the call ends
		after time.Duration
	}{
		"unused":      {"DONE 1 200 0 -\n", "", 2 * time.Second},
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
					_, _ = io.Copy(io.Discard, r) // until it is closed
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
