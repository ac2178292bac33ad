package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
)

// TestSmuggling checks that, whatever a client sends, the machine and the proxy see the same requests.
func TestSmuggling(t *testing.T) {
	const inner = "GET /smuggled HTTP/1.1\r\nHost: web.example\r\n\r\n"
	chunked := "5\r\nhello\r\n0\r\n\r\n"
	for name, c := range map[string]struct {
		raw    string
		status int      // status of the first reply
		seen   []string // requests that the machine sees, as method, host, path and body
	}{
		"both lengths": {
			"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 200,
			[]string{"POST web.example / hello"},
		},
		"both lengths, followed by a request": {
			// Chunked encoding takes precedence, so the rest is another request from the same client.
			"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, 200,
			[]string{"POST web.example / ", "GET web.example /smuggled "},
		},
		"two lengths":             {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400, nil},
		"a length with a sign":    {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: +5\r\n\r\nhello", 400, nil},
		"a negative length":       {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: -5\r\n\r\nhello", 400, nil},
		"a list of lengths":       {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5, 5\r\n\r\nhello", 400, nil},
		"a length in hex":         {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 0x5\r\n\r\nhello", 400, nil},
		"a coding twice":          {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 501, nil},
		"a coding with others":    {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked, identity\r\n\r\n" + chunked, 501, nil},
		"a coding with a control": {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: \x0bchunked\r\n\r\n" + chunked, 400, nil},
		"a coding before a colon": {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding : chunked\r\n\r\n" + chunked, 400, nil},
		"a bad chunk":             {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n", 400, nil},
		"a chunk of minus one":    {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n", 400, nil},
		"a chunk past 64 bits":    {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n", 400, nil},
		"a chunk that is longer":  {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", 400, nil},
		"a fold": {
			"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: 1\r\n Content-Length: 5\r\n\r\n", 200,
			[]string{"GET web.example / "},
		},
		"a fold first":          {"GET / HTTP/1.1\r\n Host: web.example\r\n\r\n", 400, nil},
		"NUL in a value":        {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: a\x00b\r\n\r\n", 400, nil},
		"NUL in a name":         {"GET / HTTP/1.1\r\nHost: web.example\r\nX\x00A: b\r\n\r\n", 400, nil},
		"NUL in the host":       {"GET / HTTP/1.1\r\nHost: web.example\x00\r\n\r\n", 400, nil},
		"a bare CR":             {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: a\rX-B: b\r\n\r\n", 400, nil},
		"two hosts":             {"GET / HTTP/1.1\r\nHost: web.example\r\nHost: other.example\r\n\r\n", 400, nil},
		"no host":               {"GET / HTTP/1.1\r\n\r\n", 400, nil},
		"a host with a path":    {"GET / HTTP/1.1\r\nHost: web.example/x\r\n\r\n", 400, nil},
		"a host with a user":    {"GET / HTTP/1.1\r\nHost: x@web.example\r\n\r\n", 400, nil},
		"another absolute form": {"GET http://other.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n", 404, nil},
		"an absolute form":      {"GET http://web.example/a HTTP/1.1\r\nHost: other.example\r\n\r\n", 200, []string{"GET web.example /a "}},
		"an absolute form with another scheme": {
			"GET ftp://u:p@web.example/a HTTP/1.1\r\nHost: other.example\r\n\r\n", 200,
			[]string{"GET web.example /a "},
		},
		"an opaque address":   {"GET http:web.example HTTP/1.1\r\nHost: web.example\r\n\r\n", 400, nil},
		"CONNECT":             {"CONNECT web.example:80 HTTP/1.1\r\nHost: web.example\r\n\r\n", 405, nil},
		"a space in the path": {"GET /a b HTTP/1.1\r\nHost: web.example\r\n\r\n", 400, nil},
		"a name with a space": {"GET / HTTP/1.1\r\nHost: web.example\r\nX A: b\r\n\r\n", 400, nil},
		"a Connection header that names the proxy's headers": {
			// A client must not be able to remove the proxy's own headers.
			"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Fly-Client-IP, X-Forwarded-For\r\n\r\n", 200, []string{"GET web.example / "},
		},
		"a body of GET": {"GET / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 45\r\n\r\n" + inner, 200, []string{"GET web.example / " + inner}},
		"an upgrade to h2c": {
			"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 200,
			[]string{"GET web.example / "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var seen []string
			w := newWorld(t, handle(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return // the proxy has closed the connection
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Header.Get("Fly-Client-Ip") == "" || r.Header.Get("X-Forwarded-For") == "" {
					t.Error("the request lacks the proxy's headers")
				}
				seen = append(seen, fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.URL.Path, body))
			})).start(proxy.Listener{})
			conn, in := w.dial()
			_, _ = io.WriteString(conn, c.raw+"GET /end HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
			_, _ = io.Copy(io.Discard, in) // read until the proxy closes the connection
			w.settled()
			mu.Lock()
			defer mu.Unlock()
			want := c.seen
			if c.status == 200 || c.status == 404 || c.status == 405 || name == "an opaque address" { // the connection stays open for the second request
				want = append(slices.Clone(want), "GET web.example /end ")
			}
			if diff := cmp.Diff(want, seen, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSlowLoris checks that a client that sends its header or body byte by byte is disconnected, and that this does not
// count against the machine.
func TestSlowLoris(t *testing.T) {
	w := newWorld(t, handle(echo))
	w.config.Limits.Stall = 500 * time.Millisecond
	w.start(proxy.Listener{})
	_, in := w.send("POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 100\r\n\r\nslow")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 408 {
		t.Errorf("status %d", resp.StatusCode)
	}
	w.settled()
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
	if s := proxy.NewServer(nil, slog.New(slog.DiscardHandler)); s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Error("the server has no limits")
	}
}

// send opens a connection to the proxy and sends raw.
func (w *world) send(raw string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c, in := w.dial()
	if _, err := io.WriteString(c, raw); err != nil {
		w.t.Fatal(err)
	}
	return c, in
}

// TestHeaderBomb checks that the size of headers from clients and machines is limited.
func TestHeaderBomb(t *testing.T) {
	w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
	})).start(proxy.Listener{})
	resp, _ := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != 502 {
		t.Errorf("a machine's large header: status %d", resp.StatusCode)
	}
	r := w.request("GET", "/", nil)
	r.Header.Set("X-Big", strings.Repeat("x", 1<<20))
	if resp, err := client(t, false).RoundTrip(r); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != 431 {
			t.Errorf("a client's large header: status %d", resp.StatusCode)
		}
	}
}

// TestLargeBodies checks that bodies may have any size and are not buffered.
func TestLargeBodies(t *testing.T) {
	const size = 100 << 20
	w := newWorld(t, handle(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Read", fmt.Sprint(n, err))
		_, _ = io.CopyN(w, zeros{}, size)
	})).start(proxy.Listener{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := client(t, false).RoundTrip(w.request("POST", "/", io.LimitReader(zeros{}, size)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if got, want := resp.Header.Get("X-Read"), fmt.Sprint(size, nil); n != size || err != nil || got != want {
		t.Errorf("sent %s, read %d %v", got, n, err)
	}
	runtime.ReadMemStats(&after)
	if grew := int64(after.Sys) - int64(before.Sys); grew > size/2 {
		t.Errorf("memory grew by %d MiB", grew>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBackPressure checks that a client that does not read slows the machine down and is eventually disconnected.
func TestBackPressure(t *testing.T) {
	stopped := make(chan error, 1)
	w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.CopyN(w, zeros{}, 1<<30)
		stopped <- err
	}))
	w.config.Limits.Stall = 100 * time.Millisecond
	w.start(proxy.Listener{})
	w.send("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
	if err := <-stopped; err == nil {
		t.Error("the machine could send a gigabyte although nobody read it")
	}
	w.settled()
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
}

// TestSlowMachine checks that the time limit for clients does not apply to the machine's processing time, for any
// request on a connection.
func TestSlowMachine(t *testing.T) {
	const stalled = 500 * time.Millisecond
	w := newWorld(t, handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-time.After(stalled + stalled/4) // the machine takes longer than a client may
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, "at once")
	}))
	w.config.Limits.Stall = stalled
	w.start(proxy.Listener{})
	c, in := w.send("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
	for _, want := range []int{200, 304} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
		_, _ = io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: web.example\r\n\r\n")
	}
}

// TestNoAnswer checks that a request is not retried if a machine accepted it but does not answer, because the machine
// may be processing it.
func TestNoAnswer(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t)
	for range 2 {
		w.machine(rawMachine(t, func(_ net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				asked.Add(1)
				_, _ = in.ReadByte() // wait until the proxy disconnects
			}
		}))
	}
	w.config.Limits.ResponseHeader = 50 * time.Millisecond
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != 504 || !strings.Contains(text, "did not answer in time") || asked.Load() != 1 {
		t.Errorf("%d %s, asked %d times", resp.StatusCode, text, asked.Load())
	}
}

// TestNotReady checks the error messages if a machine cannot be made ready. They must not contain details that belong
// only in the log.
func TestNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		text   string
	}{
		"full":   {bourse.Errorf(bourse.CodeInsufficient, "memory of another machine"), 503, "its host is full"},
		"failed": {bourse.Errorf(bourse.CodeFailedPrecondition, "exec /srv/secret: no such file"), 503, "the app is not running"},
		"slow":   {context.DeadlineExceeded, 504, "no machine was ready in time"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, handle(echo), handle(echo))
			w.use = func(context.Context, bourse.MachineID) error { return c.err }
			w.start(proxy.Listener{})
			resp, text := w.do(w.request("GET", "/", nil))
			if resp.StatusCode != c.status || !strings.Contains(text, c.text) || strings.Contains(text, "secret") || strings.Contains(text, "another") {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			if again := resp.Header.Get("Retry-After"); (again != "") != (c.status == 503) {
				t.Errorf("Retry-After %q", again)
			}
			if len(w.uses) != 2 {
				t.Errorf("machines asked: %v", w.uses)
			}
		})
	}
}

// TestCrowd checks that the number of requests that wait for an app's machines is limited.
func TestCrowd(t *testing.T) {
	w := newWorld(t, handle(echo))
	awake := make(chan struct{})
	w.use = func(ctx context.Context, _ bourse.MachineID) error {
		select {
		case <-awake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.config.Limits.MaxWaiting = 3
	w.start(proxy.Listener{})
	var all sync.WaitGroup
	for range 3 {
		r := w.request("GET", "/", nil)
		all.Go(func() {
			resp, err := client(t, false).RoundTrip(r)
			if err != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	w.eventually("three wait", func() bool { return len(w.uses) == 3 })
	resp, text := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != 503 || !strings.Contains(text, "too many requests are waiting") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	close(awake)
	all.Wait()
}

// TestLeft checks that everything is cleaned up when a client disconnects while waiting for a slot, a machine or a
// reply.
func TestLeft(t *testing.T) {
	w := newWorld(t)
	at := make(chan string, 8)
	w.machine(rawMachine(t, func(_ net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			at <- "send"
			_, _ = in.ReadByte()
		}
	}))
	ready := make(chan bool, 1)
	w.use = func(ctx context.Context, _ bourse.MachineID) error {
		at <- "use"
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.start(proxy.Listener{})
	for _, where := range []string{"use", "send"} {
		c, _ := w.send("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
		<-at
		if where == "send" {
			ready <- true
			<-at
		}
		_ = c.Close()
		w.settled()
	}
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
	w.eventually("both are logged", func() bool { return strings.Count(w.log.String(), "status=499") == 2 })
}

// TestIdle checks that an upgraded connection is closed after the idle timeout of the service.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	w.machine(rawMachine(t, func(c net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
			_, _ = in.ReadByte()
		}
	}))
	w.target.Port.HTTP.IdleTimeout = 50 * time.Millisecond
	w.start(proxy.Listener{})
	_, in := w.send("GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if text, err := io.ReadAll(in); !strings.HasSuffix(string(text), "hello") {
		t.Errorf("%q %v", text, err)
	}
	w.settled()
}
