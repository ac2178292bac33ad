package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/workload"
)

// echo responds with a description of the request that it received.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(got{r.Method, r.Host, r.RequestURI, string(body), r.Header})
}

type got struct {
	Method, Host, URI, Body string
	Header                  http.Header
}

func decode(t *testing.T, text string) (g got) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return g
}

// TestHeaders checks that a machine receives the proxy's headers about the client, whatever headers
// the client sends, and that the client receives the request's ID.
func TestHeaders(t *testing.T) {
	w := newWorld(t, handle(echo)).start(proxy.Listener{Port: 80})
	r := w.request("POST", "/a%2Fb?x=1;y=%zz&q", strings.NewReader("hello"))
	for _, h := range []string{"Fly-Client-IP", "X-Forwarded-For", "Fly-Region", "Fly-Request-Id", "Fly-Replay-Src", "X-Real-Ip", "Forwarded"} {
		r.Header.Set(h, "6.6.6.6")
	}
	r.Header["Fly_Client_ip"] = []string{"6.6.6.6"}
	r.Header["x_forwarded_for"] = []string{"6.6.6.6"}
	r.Header.Set("Connection", "X-Secret-Hop")
	r.Header.Set("X-Secret-Hop", "1")
	r.Header.Set("X-Mine", "2")
	resp, text := w.do(r)
	g := decode(t, text)
	id := g.Header.Get("Fly-Request-Id")
	if _, err := ulid.ParseStrict(id); err != nil || resp.Header.Get("Fly-Request-Id") != id {
		t.Errorf("request id %q, the client got %q", id, resp.Header.Get("Fly-Request-Id"))
	}
	delete(g.Header, "Fly-Request-Id")
	want := got{"POST", "web.example", "/a%2Fb?x=1;y=%zz&q", "hello", http.Header{
		"Content-Length": {"5"}, "Fly-Client-Ip": {"127.0.0.1"}, "Fly-Forwarded-Port": {"80"}, "Fly-Region": {"gru"}, "User-Agent": {"Go-http-client/1.1"},
		"Via": {"1.1 bourse"}, "X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Port": {"80"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Ssl": {"off"}, "X-Mine": {"2"},
	}}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Error(diff)
	}
	if s, v := resp.Header.Get("Server"), resp.Header.Get("Via"); s != "Bourse" || v != "1.1 bourse" {
		t.Errorf("server %q, via %q", s, v)
	}
}

// TestTrusted checks that X-Forwarded headers from a trusted address are used.
func TestTrusted(t *testing.T) {
	w := newWorld(t, handle(echo))
	w.config.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	w.start(proxy.Listener{})
	r := w.request("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.1.1.1")
	r.Header.Set("X-Forwarded-Proto", "https")
	_, text := w.do(r)
	h := decode(t, text).Header
	if ip, all, proto := h.Get("Fly-Client-Ip"), h.Get("X-Forwarded-For"), h.Get("X-Forwarded-Proto"); ip != "203.0.113.9" ||
		all != "6.6.6.6, 203.0.113.9, 10.1.1.1, 127.0.0.1" || proto != "https" {
		t.Errorf("client %q, chain %q, proto %q", ip, all, proto)
	}
}

// TestPristine checks that a service can disable all header changes except its own.
func TestPristine(t *testing.T) {
	w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "mine")
		w.Header().Set("X-Gone", "1")
	}))
	w.target.Port.HTTP = workload.HTTPOptions{Pristine: true, Headers: []workload.HeaderEdit{{Name: "x-gone"}, {Name: "x-set", Values: []string{"a", "b"}}}}
	w.start(proxy.Listener{})
	resp, _ := w.do(w.request("GET", "/", nil))
	resp.Header.Del("Date")
	want := http.Header{"Server": {"mine"}, "X-Set": {"a", "b"}, "Content-Length": {"0"}}
	if diff := cmp.Diff(want, resp.Header); diff != "" {
		t.Error(diff)
	}
}

// TestForceHTTPS checks that a service can redirect plain HTTP requests to HTTPS.
func TestForceHTTPS(t *testing.T) {
	w := newWorld(t, handle(echo))
	w.target.Port.ForceHTTPS = true
	w.start(proxy.Listener{HTTPSPort: 8443})
	resp, _ := w.do(w.request("GET", "/a?b=c", nil))
	if got := resp.Header.Get("Location"); resp.StatusCode != 301 || got != "https://web.example:8443/a?b=c" {
		t.Errorf("%d to %q", resp.StatusCode, got)
	}
	if len(w.uses) != 0 {
		t.Error("a machine was used for this request")
	}
}

// TestUnknownHost checks the error for an unknown host name, as text and as JSON. The log must contain
// the same request ID.
func TestUnknownHost(t *testing.T) {
	w := newWorld(t, handle(echo)).start(proxy.Listener{})
	r := w.request("GET", "/secret?token=1", nil)
	r.Host = "other.example:80"
	r.Header.Set("Accept", "application/json")
	resp, text := w.do(r)
	var body struct{ Error, RequestID string }
	if err := json.Unmarshal([]byte(strings.Replace(text, "request_id", "RequestID", 1)), &body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 404 || body.Error != `no app serves host "other.example"` || body.RequestID != resp.Header.Get("Fly-Request-Id") {
		t.Errorf("%d %+v", resp.StatusCode, body)
	}
	w.eventually("the request is logged", func() bool { return strings.Contains(w.log.String(), body.RequestID) })
	if line := w.log.String(); strings.Contains(line, "token") || !strings.Contains(line, "path=/secret ") || !strings.Contains(line, "status=404") {
		t.Error(line)
	}
	r = w.request("GET", "/", nil)
	r.Host = "other.example"
	if _, text := w.do(r); !strings.HasPrefix(text, "404 Not Found: no app serves host \"other.example\"\nrequest id: ") {
		t.Error(text)
	}
}

// TestRequestWaitsForNewHost checks that a request for an unknown host name waits for the name to appear, unless too
// many requests are waiting.
func TestRequestWaitsForNewHost(t *testing.T) {
	w := newWorld(t, handle(echo))
	w.config.Limits.Lookup = limit
	w.start(proxy.Listener{})
	ask := func() (int, string) {
		r := w.request("GET", "/", nil)
		r.Host = "new.example"
		resp, text := w.do(r)
		return resp.StatusCode, text
	}
	answered := make(chan int, 1)
	go func() {
		status, _ := ask()
		answered <- status
	}()
	w.eventually("the request waits", func() bool { return w.changed != nil && w.proxy.Open() == 1 })
	w.mu.Lock()
	w.later = "new.example"
	close(w.changed)
	w.changed = nil
	w.mu.Unlock()
	if status := <-answered; status != 200 {
		t.Errorf("a request that waited got status %d", status)
	}
	if status, text := ask(); status != 200 {
		t.Errorf("%d: %s", status, text)
	}
}

// TestStream checks that events are forwarded immediately and not buffered.
func TestStream(t *testing.T) {
	for _, compress := range []bool{false, true} {
		next := make(chan string)
		w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for text := range next {
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			}
		}))
		w.target.Port.HTTP.Compress = compress
		w.start(proxy.Listener{})
		r := w.request("GET", "/", nil)
		tr := client(t, false)
		tr.DisableCompression = false // the client requests gzip, and decodes it
		go func() { next <- "data: 0\n" }()
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) {
				t.Fatalf("line %d: %q %v", i, lines.Text(), lines.Err())
			}
			if i < 2 {
				next <- fmt.Sprintf("data: %d\n", i+1)
			}
		}
		if resp.Uncompressed != compress {
			t.Errorf("compressed: %v, want %v", resp.Uncompressed, compress)
		}
		close(next)
		if lines.Scan() {
			t.Error("unexpected line")
		}
		_ = resp.Body.Close()
	}
}

// TestSwitch checks protocol upgrades: bytes flow in both directions, the directions end
// separately, and the machine's slot is released.
func TestSwitch(t *testing.T) {
	w := newWorld(t)
	w.machine(rawMachine(t, func(c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nwelcome\n")
		_, _ = io.Copy(c, in) // until the client has closed its sending side
	}))
	w.start(proxy.Listener{})
	c, in := w.dial()
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: web.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	big := strings.Repeat("x", 100<<10) + "\n"
	go func() { _, _ = io.WriteString(c, big) }()
	for _, want := range []string{"welcome\n", big} {
		if got, err := in.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%d bytes, want %d: %v", len(got), len(want), err)
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	w.settled()
	w.eventually("the request is logged", func() bool { return w.log.String() != "" })
	if line := w.log.String(); !strings.Contains(line, "status=101") || !strings.Contains(line, "read=102401 written=102409") {
		t.Error(line)
	}
}

// dial opens a connection to the proxy.
func (w *world) dial() (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c, err := net.DialTimeout("tcp", w.addr, limit)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	w.t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// TestTwoWays checks that, over HTTP/2, both sides can send at the same time and trailers are forwarded, as gRPC
// requires.
func TestTwoWays(t *testing.T) {
	w := newWorld(t, handle(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		control := http.NewResponseController(w)
		_ = control.Flush()
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			_, _ = io.WriteString(w, lines.Text()+"!\n")
			_ = control.Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}))
	w.target.Port.HTTP.H2Backend = true
	w.start(proxy.Listener{})
	body, send := io.Pipe()
	r := w.request("POST", "/", body)
	r.Header.Set("Te", "trailers")
	resp, err := client(t, true).RoundTrip(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		_, _ = fmt.Fprintln(send, i)
		if got, err := in.ReadString('\n'); err != nil || got != fmt.Sprintf("%d!\n", i) {
			t.Fatal(got, err)
		}
	}
	_ = send.Close()
	if _, err := io.ReadAll(in); err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Error(err, resp.Trailer)
	}
	_ = resp.Body.Close()
}

// TestUnsentRequestGoesToAnotherMachine checks that a request that could not be sent goes to another machine, whatever
// its method, and that the first machine is reported as failed.
func TestUnsentRequestGoesToAnotherMachine(t *testing.T) {
	for _, fail := range []string{"dial", "use"} {
		w := newWorld(t)
		bad := w.machine(dead(t))
		good := newWorld(t, handle(echo))
		w.machine(good.upstreams[good.target.Backends[0].Machine].addr)
		if fail == "use" {
			w.use = func(_ context.Context, id bourse.MachineID) error {
				if id == bad {
					return bourse.Errorf(bourse.CodeInsufficient, "full")
				}
				return nil
			}
		}
		w.start(proxy.Listener{})
		resp, text := w.do(w.request("POST", "/", strings.NewReader("once")))
		if resp.StatusCode != 200 || decode(t, text).Body != "once" {
			t.Errorf("%s: %d %s", fail, resp.StatusCode, text)
		}
		w.settled()
		if !slices.Equal(w.failed, []bourse.MachineID{bad}) || !slices.Contains(w.counts, "repeated web "+fail) {
			t.Errorf("%s: %v %v", fail, w.failed, w.counts)
		}
	}
}

// TestRequestIsRepeatedOnlyIfHarmless checks that a request that a machine may have acted on is retried only if this is
// safe.
func TestRequestIsRepeatedOnlyIfHarmless(t *testing.T) {
	long := strings.Repeat("x", 1<<20) // longer than the bodies that the proxy stores
	for name, c := range map[string]struct {
		method, key, body string
		again             bool
	}{
		"GET":                             {"GET", "", "", true},
		"HEAD":                            {"HEAD", "", "", true},
		"POST":                            {"POST", "", "pay", false},
		"POST without body":               {"POST", "", "", false},
		"POST with a key":                 {"POST", "k", "pay", true},
		"POST with a key and a long body": {"POST", "k", long, false},
		"PUT":                             {"PUT", "", "new", false},
		"DELETE":                          {"DELETE", "", "", true},
		"PATCH":                           {"PATCH", "", "", false},
		"GET with a body":                 {"GET", "", "some", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bad := w.machine(rawMachine(t, func(_ net.Conn, in *bufio.Reader) {
				if r, err := http.ReadRequest(in); err == nil {
					_, _ = io.CopyN(io.Discard, r.Body, 1<<19) // the machine dies while it reads the body
				}
			}))
			good := newWorld(t, handle(echo))
			w.machine(good.upstreams[good.target.Backends[0].Machine].addr)
			w.start(proxy.Listener{})
			r := w.request(c.method, "/", strings.NewReader(c.body))
			if c.body == "" {
				r = w.request(c.method, "/", nil)
			}
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			resp, text := w.do(r)
			want := map[bool]int{true: 200, false: 502}[c.again]
			if resp.StatusCode != want || c.again && c.method != "HEAD" && decode(t, text).Body != c.body {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			w.settled()
			if c.body == long && len(w.failed) == 0 {
				return // not the machine's fault: it may have given up on a slow client
			}
			if !slices.Equal(w.failed, []bourse.MachineID{bad}) {
				t.Errorf("failed: %v", w.failed)
			}
		})
	}
}

// TestBrokenOff checks that, if a machine dies in the middle of its reply, the connection to the client breaks, so that
// the reply does not look complete.
func TestBrokenOff(t *testing.T) {
	for _, head := range []string{"Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
		for _, h2 := range []bool{false, true} {
			w := newWorld(t)
			bad := w.machine(rawMachine(t, func(c net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				}
			}))
			w.start(proxy.Listener{})
			if resp, err := client(t, h2).RoundTrip(w.request("GET", "/", nil)); err == nil { // otherwise the reply's header was still buffered
				if text, err := io.ReadAll(resp.Body); err == nil {
					t.Errorf("the reply looks complete: %q", text)
				}
				_ = resp.Body.Close()
			}
			w.settled()
			if !slices.Equal(w.failed, []bourse.MachineID{bad}) {
				t.Errorf("failed: %v", w.failed)
			}
		}
	}
}

// TestContinue checks that "100 Continue" comes from the machine, and that the client's body is
// sent only if the machine accepts it.
func TestContinue(t *testing.T) {
	w := newWorld(t, handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})).start(proxy.Listener{})
	for path, want := range map[string][]int{"/yes": {100, 200}, "/no": {403}} {
		c, in := w.send("POST " + path + " HTTP/1.1\r\nHost: web.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		for _, status := range want {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if status == 100 {
				_, _ = io.WriteString(c, "hello")
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != status || status == 200 && string(text) != "hello" {
				t.Errorf("%s: %d %q, want %d", path, resp.StatusCode, text, status)
			}
		}
	}
}

// TestEarlyReply checks that the client receives a reply that the machine sends before it has read
// the body.
func TestEarlyReply(t *testing.T) {
	w := newWorld(t, handle(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "too large")
	})).start(proxy.Listener{})
	c, in := w.dial()
	go func() {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 10000000\r\n\r\n")
		_, _ = io.CopyN(c, zeros{}, 10_000_000)
	}()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "too large" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	w.settled()
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
}
