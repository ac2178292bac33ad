package warm_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/worker/warm"
)

// No more handlers run at once than were asked for, and what waits and is given
// up is not begun.
func TestHandlersAtOnce(t *testing.T) {
	const most = 3
	var now, began atomic.Int64
	arrived, release, told := make(chan struct{}, 100), make(chan struct{}), make(chan struct{}, 1)
	c := open(t, serve(t, most, func(ctx context.Context, _ *warm.Call) warm.Answer {
		if n := now.Add(1); n > most {
			t.Errorf("%d handlers at once", n)
		}
		defer now.Add(-1)
		began.Add(1)
		arrived <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			told <- struct{}{}
		}
		return warm.Answer{}
	}))
	var group sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	group.Go(func() {
		if _, err := c.Call(ctx, soon("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("the one that is left: %v", err)
		}
	})
	for range most - 1 {
		group.Go(func() {
			if _, err := c.Call(t.Context(), soon("x")); err != nil {
				t.Error(err)
			}
		})
	}
	for range most {
		<-arrived
	}
	short := soon("given up")
	short.Deadline = time.Now().Add(10 * time.Millisecond)
	if _, err := c.Call(t.Context(), short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond the limit: %v", err)
	}
	leave()
	<-told // and of the one before it, too
	for range 2 * most {
		group.Go(func() {
			if _, err := c.Call(t.Context(), soon("x")); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	group.Wait()
	if n := began.Load(); n != 3*most {
		t.Errorf("%d handlers began, want %d: what was abandoned is not begun", n, 3*most)
	}
}

// What is not a frame, or repeats a call in progress, ends the connection, and
// the contexts of its handlers.
func TestWorkersThatTalkNonsense(t *testing.T) {
	for name, text := range map[string]string{
		"HTTP":          "POST / HTTP/1.1\r\n\r\n",
		"an id again":   "CALL 1 o 1 0 -\n",
		"too large":     "CALL 2 o 1 1048577 -\n",
		"a reply":       "DONE 1 200 0 -\n",
		"a long line":   strings.Repeat("C", 1000),
		"nothing more":  "",
		"half a line":   "CALL 2 o",
		"half a body":   "CALL 2 o 1 5 -\nab",
		"an odd cancel": "CANCEL one\n",
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 1)
			address := serve(t, 0, func(ctx context.Context, _ *warm.Call) warm.Answer {
				<-ctx.Done()
				told <- ctx.Err()
				return warm.Answer{}
			})
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "CANCEL 7\nCALL 1 o 1 0 -\n"+text); err != nil {
				t.Fatal(err)
			}
			if tcp := conn.(*net.TCPConn); !strings.Contains(name, "a long") {
				_ = tcp.CloseWrite()
			}
			if err := <-told; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler's context: %v", err)
			}
			if n, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				t.Errorf("it said %q", n)
			}
		})
	}
}
