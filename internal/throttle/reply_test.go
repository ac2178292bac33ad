package throttle_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// TestClientsThatDoNotRead has a hundred clients request 2 MiB each without reading the replies.
// The replies must hold no more memory than the limit. The other clients are refused, and all
// connections are closed after thirty seconds. Without limits the replies would hold 200 MiB.
func TestClientsThatDoNotRead(t *testing.T) {
	const total, reply, clients = 8 << 20, 2 << 20, 100
	synctest.Test(t, func(t *testing.T) {
		var held, most atomic.Int64
		dial := server(t, throttle.NewBodies(total), func(w http.ResponseWriter, _ *http.Request) {
			release, err := throttle.ReserveReply(w, reply)
			if err != nil {
				http.Error(w, "later", http.StatusTooManyRequests)
				return
			}
			defer release()
			most.Store(max(most.Load(), held.Add(reply)))
			defer held.Add(-reply)
			throttle.WriteReply(w, make([]byte, reply))
		})
		began := time.Now()
		ask := func() (status int, body io.Reader) {
			c := dial()
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp.StatusCode, resp.Body
		}
		statuses := map[int]int{}
		var unread []io.Reader
		for range clients {
			status, body := ask()
			statuses[status]++
			if status == http.StatusOK {
				unread = append(unread, body)
			}
		}
		if most.Load() > total || statuses[http.StatusOK] != total/reply || statuses[http.StatusTooManyRequests] != clients-total/reply {
			t.Errorf("got at most %d held bytes with limit %d, and statuses %v", most.Load(), total, statuses)
		}
		for held.Load() > 0 {
			time.Sleep(time.Second) // virtual time
		}
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("the connections were closed after %s, want 30s", took)
		}
		for _, body := range unread {
			if n, err := io.Copy(io.Discard, body); err == nil {
				t.Errorf("a client whose connection was closed got %d bytes and no error", n)
			}
		}
		_, last := ask()
		if n, err := io.Copy(io.Discard, last); err != nil || n != reply {
			t.Errorf("a later client: got %d bytes, %v; want %d", n, err, reply)
		}
	})
}

// TestSingleReplyMayExceedTheLimit checks that a reply larger than the limit is written if no other reply is reserved,
// even if handlers have wrapped the writer.
func TestSingleReplyMayExceedTheLimit(t *testing.T) {
	var err, second error
	h := throttle.NewBodies(1 << 20).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w = wrapper{w}
		var release func()
		if release, err = throttle.ReserveReply(w, 100<<20); err != nil {
			return
		}
		defer release()
		_, second = throttle.ReserveReply(w, 1<<20)
	}))
	for range 2 {
		h.ServeHTTP(nil, &http.Request{})
		if err != nil {
			t.Errorf("the only reply: %v", err)
		}
		if bourse.CodeOf(second) != bourse.CodeRateLimited {
			t.Errorf("a second reply: %v, want %s", errors.Unwrap(second), bourse.CodeRateLimited)
		}
	}
}

// wrapper is a writer that wraps another one, as handlers do.
type wrapper struct{ http.ResponseWriter }

func (a wrapper) Unwrap() http.ResponseWriter { return a.ResponseWriter }
