package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// IDs of a world's machines, in order.
const (
	first  = "00000a00000001"
	second = "00000a00000002"
	third  = "00000a00000003"
)

// replays enables replays in a world and adds other apps. Each of them has the stopped machine third in region mad.
func (w *world) replays(others map[string]*route.App) *replay.Spools {
	w.t.Helper()
	s, err := replay.OpenSpools(w.t.TempDir(), replay.Limits{}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.config.Replays = &proxy.Replays{Apps: routed{w, others}, Spools: s}
	return s
}

type routed struct {
	w      *world
	others map[string]*route.App
}

func (r routed) App(name bourse.AppName) []*route.Target {
	if name == r.w.target.App.Name {
		return []*route.Target{&r.w.target}
	}
	if a := r.others[string(name)]; a != nil {
		t := r.w.target
		t.App = a
		t.Backends = []route.Backend{{
			Machine: third, Instance: "v1", Worker: "w1", Region: "mad", State: bourse.StateStopped, Reachable: true,
			Service: workload.Service{Protocol: workload.ProtocolTCP, InternalPort: 8080, Autostart: true},
		}}
		return []*route.Target{&t}
	}
	return nil
}

// asks returns a handler that requests a replay and counts its calls in n.
func asks(n *atomic.Int64, replay string, more ...string) http.Handler {
	return handle(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Fly-Replay", replay)
		for i := 0; i < len(more); i += 2 {
			w.Header().Set(more[i], more[i+1])
		}
		w.WriteHeader(http.StatusConflict)
	})
}

// TestReplay checks that a request is replayed to the machine that the reply names, with its body,
// the state and the issuer. Replay headers that a client sends must be removed.
func TestReplay(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, asks(&asked, "instance="+second+";state=a=b c"), handle(echo))
	w.replays(nil)
	w.start(proxy.Listener{})
	r := w.request("POST", "/path?q", strings.NewReader("hello"))
	r.Header.Set("Fly-Replay-Src", "instance=evil")
	r.Header["Fly_replay_failed"] = []string{"evil"}
	resp, text := w.do(r)
	g := decode(t, text)
	src, _, _ := strings.Cut(g.Header.Get("Fly-Replay-Src"), ";t=")
	if resp.StatusCode != 200 || g.Body != "hello" || g.URI != "/path?q" || src != "instance="+first+";region=gru" ||
		!strings.HasSuffix(g.Header.Get("Fly-Replay-Src"), ";state=a=b c") || g.Header.Get("Fly-Replay-Cache-Status") != "miss" {
		t.Errorf("%d %+v", resp.StatusCode, g)
	}
	if got := g.Header["Fly_replay_failed"]; got != nil || g.Header.Get("Fly-Replay-Failed") != "" {
		t.Errorf("the machine received the client's own header: %q", got)
	}
	if resp.Header.Get("Fly-Replay") != "" || asked.Load() != 1 {
		t.Errorf("the client got %v, after %d replays", resp.Header, asked.Load())
	}
	w.eventually("the replay is logged", func() bool { return strings.Contains(w.log.String(), "replays=1") })
}

// TestReplayLargeBody checks that a body that does not fit into memory is replayed byte for byte, even if the machine
// replied before reading it, and that no part of the body remains stored afterward.
func TestReplayLargeBody(t *testing.T) {
	body := make([]byte, 5<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(body)
	for name, read := range map[string]int64{"read whole": 5 << 20, "read in part": 300 << 10, "not read": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, handle(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, read)
				rw.Header().Set("Fly-Replay", "elsewhere=true")
			}), handle(func(rw http.ResponseWriter, r *http.Request) {
				sum := sha256.New()
				n, err := io.Copy(sum, r.Body)
				_, _ = fmt.Fprintf(rw, "%d %d %v %x", r.ContentLength, n, err, sum.Sum(nil))
			}))
			spools := w.replays(nil)
			w.start(proxy.Listener{})
			resp, text := w.do(w.request("PUT", "/", bytes.NewReader(body)))
			if want := fmt.Sprintf("%d %d <nil> %x", len(body), len(body), sha256.Sum256(body)); resp.StatusCode != 200 || text != want {
				t.Errorf("%d %s, want %s", resp.StatusCode, text, want)
			}
			w.eventually("the body is discarded", func() bool { m, f := spools.Usage(); return m == 0 && f == 0 })
		})
	}
}

// TestReplayTooLarge checks that a body that exceeds the limit is forwarded but cannot be replayed,
// and that the client receives the reason.
func TestReplayTooLarge(t *testing.T) {
	w := newWorld(t, handle(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Fly-Replay", "elsewhere=true")
	}), handle(echo))
	s, err := replay.OpenSpools(t.TempDir(), replay.Limits{PerRequest: 100 << 10}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.config.Replays = &proxy.Replays{Apps: routed{w: w}, Spools: s}
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("POST", "/", bytes.NewReader(make([]byte, 200<<10))))
	if resp.StatusCode != 413 || !strings.Contains(text, "cannot be replayed: the request's body is larger than 102400 bytes") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestReplayLoop checks the status of a request that machines replay to each other endlessly.
func TestReplayLoop(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, asks(&asked, "elsewhere=true"), asks(&asked, "elsewhere=true"))
	w.replays(nil)
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != 508 || !strings.Contains(text, "too many times") || asked.Load() != replay.MaxReplays+1 {
		t.Errorf("%d after %d replies: %s", resp.StatusCode, asked.Load(), text)
	}
}

// TestReplayRefused checks that invalid replays are refused. The author of the program must learn
// the reason, but nothing about apps of other tenants.
func TestReplayRefused(t *testing.T) {
	others := map[string]*route.App{"stranger": {ID: "9", Name: "stranger", Org: "evil"}}
	for text, want := range map[string]struct {
		status int
		text   string
	}{
		"path=/x":                  {502, `fly-replay: unknown field "path"`},
		"app=stranger":             {502, "to a destination without machines"},
		"app=nothing":              {502, "to a destination without machines"},
		"instance=00000b00000009":  {502, "to a destination without machines"},
		"region=ams":               {502, "to a destination without machines"},
		"app=stranger;timeout=10s": {502, "to a destination without machines"},
	} {
		var asked atomic.Int64
		w := newWorld(t, asks(&asked, text))
		w.replays(others)
		w.start(proxy.Listener{})
		resp, got := w.do(w.request("GET", "/", nil))
		if resp.StatusCode != want.status || !strings.Contains(got, want.text) || len(w.uses) != 1 {
			t.Errorf("%s: %d %s, uses %v", text, resp.StatusCode, got, w.uses)
		}
	}
}

// TestReplayStartsAnotherApp checks that a request replayed to another of the organization's apps starts a stopped
// machine of that app.
func TestReplayStartsAnotherApp(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, asks(&asked, "app=worker"), handle(echo), handle(echo))
	w.replays(map[string]*route.App{"worker": {ID: "2", Name: "worker", Org: "o"}})
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("GET", "/", nil))
	if g := decode(t, text); resp.StatusCode != 200 || g.Host != "web.example" {
		t.Errorf("%d %+v", resp.StatusCode, g)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]bourse.MachineID{first, third}, w.uses); diff != "" {
		t.Error(diff)
	}
	if text := strings.Join(w.counts, ","); !strings.Contains(text, "woke web ok") || !strings.Contains(text, "repeated web replay") {
		t.Error(text)
	}
}

// fallsBack returns a handler that requests a replay with a fallback, and answers the request when it comes back.
func fallsBack(text string) http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fly-Replay-Failed") == "" {
			w.Header().Set("Content-Type", replay.ContentType)
			_, _ = io.WriteString(w, text)
			return
		}
		echo(w, r)
	})
}

// TestReplayTimeoutWithFallback checks that, if a replay times out, the issuer receives the
// original request and the reason.
func TestReplayTimeoutWithFallback(t *testing.T) {
	w := newWorld(t, fallsBack(`{"instance": "`+second+`", "timeout": "50ms", "fallback": "force_self", "transform": {"path": "/other"}}`), handle(echo))
	w.use = func(ctx context.Context, id bourse.MachineID) error {
		if id != second {
			return nil
		}
		<-ctx.Done()
		return bourse.Errorf(bourse.CodeTimeout, "not ready: %w", ctx.Err())
	}
	w.replays(nil)
	w.start(proxy.Listener{})
	resp, text := w.do(w.request("POST", "/mine", strings.NewReader("hello")))
	g := decode(t, text)
	failed, _, _ := strings.Cut(g.Header.Get("Fly-Replay-Failed"), ";elapsed_ms=")
	if resp.StatusCode != 200 || g.Body != "hello" || g.URI != "/mine" || failed != "instance="+second+";replay_source="+first+";reason=timeout" {
		t.Errorf("%d %+v", resp.StatusCode, g)
	}
	if g.Header.Get("Fly-Replay-Src") != "" {
		t.Errorf("the request has the header of a replay: %v", g.Header)
	}
}

// TestReplayFallback checks the reasons for which a request falls back, and that it is not replayed
// again after that.
func TestReplayFallback(t *testing.T) {
	for name, c := range map[string]struct {
		first  http.Handler
		status int
		want   string
	}{
		"no candidate": {fallsBack(`{"app": "nothing", "fallback": "prefer_self"}`), 200, "reason=no_candidate"},
		"exhausted":    {fallsBack(`{"instance": "` + second + `", "fallback": "force_self"}`), 200, "reason=retries_exhausted"},
		"again":        {asks(new(atomic.Int64), "instance="+second+";fallback=force_self"), 502, "had fallen back"},
		"without":      {asks(new(atomic.Int64), "instance="+second), 503, "no machine could be started or reached"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.first, handle(echo))
			w.use = func(_ context.Context, id bourse.MachineID) error {
				if id == second {
					return bourse.Errorf(bourse.CodeUnavailable, "the machine does not start")
				}
				return nil
			}
			if name == "without" { // the other cases fall back immediately
				w.config.Limits.WorkerOutage = time.Millisecond
			}
			w.replays(nil)
			w.start(proxy.Listener{})
			resp, text := w.do(w.request("GET", "/", nil))
			if resp.StatusCode != c.status || !strings.Contains(text, c.want) {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
}

// TestReplayTransform checks that a replay in JSON can change the request.
func TestReplayTransform(t *testing.T) {
	w := newWorld(t, fallsBack(`{"elsewhere": true, "transform": {"path": "/new?x=1", "delete_headers": ["cookie"],
		"set_headers": [{"name": "authorization", "value": "Bearer t"}]}}`), handle(echo))
	w.replays(nil)
	w.start(proxy.Listener{})
	r := w.request("GET", "/old?y=2", nil)
	r.Header.Set("Cookie", "secret=1")
	r.Header.Set("X-Mine", "kept")
	_, text := w.do(r)
	g := decode(t, text)
	if g.URI != "/new?x=1" || g.Header.Get("Cookie") != "" || g.Header.Get("Authorization") != "Bearer t" || g.Header.Get("X-Mine") != "kept" {
		t.Errorf("%+v", g)
	}
}

// TestReplayUpgrade checks that an upgrade request is replayed like any other request.
func TestReplayUpgrade(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, asks(&asked, "instance="+second), handle(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "test" {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		c, rest, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n")
		line, _ := rest.ReadString('\n')
		_, _ = io.WriteString(c, "heard "+line)
	}))
	w.replays(nil)
	w.start(proxy.Listener{})
	r := w.request("GET", "/socket", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "test")
	resp, err := client(t, false).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	both, ok := resp.Body.(io.ReadWriter)
	if resp.StatusCode != 101 || !ok {
		t.Fatalf("status %d", resp.StatusCode)
	}
	_, _ = io.WriteString(both, "hello\n")
	if line, err := bufio.NewReader(both).ReadString('\n'); line != "heard hello\n" || asked.Load() != 1 {
		t.Errorf("%q, %v, after %d replays", line, err, asked.Load())
	}
}

// TestReplayCache checks that a cached replay is used for further requests until its machine cannot be reached. The
// request that discovers this goes to the app again.
func TestReplayCache(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, asks(&asked, "prefer_instance="+second, "Fly-Replay-Cache", "/a/*", "Fly-Replay-Cache-Ttl-Secs", "60", "Fly-Replay-Cache-Allow-Bypass", "yes"), handle(echo))
	w.replays(map[string]*route.App{"worker": {ID: "2", Name: "worker", Org: "o"}})
	w.start(proxy.Listener{})
	get := func(path string, skip bool) http.Header {
		t.Helper()
		r := w.request("GET", path, nil)
		if skip {
			r.Header.Set("Fly-Replay-Cache-Control", "skip")
		}
		resp, text := w.do(r)
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		return decode(t, text).Header
	}
	for i, c := range []struct {
		path   string
		skip   bool
		status string
		asked  int64
	}{
		{"/a/1", false, "miss", 1},
		{"/a/2", false, "hit", 1},
		{"/b", false, "miss", 2},
		{"/a/3", true, "bypass", 3},
		{"/a/4", false, "hit", 3},
	} {
		h := get(c.path, c.skip)
		if got := h.Get("Fly-Replay-Cache-Status"); got != c.status || asked.Load() != c.asked || (h.Get("Fly-Replay-Src") == "") != (c.status == "hit") {
			t.Errorf("%d: %s after %d replies, src %q; want %s after %d", i, got, asked.Load(), h.Get("Fly-Replay-Src"), c.status, c.asked)
		}
	}
	var broken atomic.Bool
	broken.Store(true)
	w.mu.Lock()
	w.use = func(_ context.Context, id bourse.MachineID) error {
		if id == second && broken.CompareAndSwap(true, false) {
			return errors.New("gone")
		}
		return nil
	}
	w.mu.Unlock()
	// Only the first machine of the target remains, and it requests a replay to the second one
	// again.
	if h := get("/a/5", false); h.Get("Fly-Replay-Cache-Status") != "miss" || asked.Load() != 4 {
		t.Errorf("%v after %d replies", h, asked.Load())
	}
}

// TestReplayThatStalls checks that a machine that sends an incomplete JSON replay does not delay the request longer
// than an unresponsive machine would.
func TestReplayThatStalls(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, handle(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", replay.ContentType)
		_, _ = io.WriteString(rw, `{"app": `)
		_ = http.NewResponseController(rw).Flush()
		<-release
	}))
	defer close(release)
	w.replays(nil)
	w.config.Limits.ResponseHeader = 50 * time.Millisecond
	w.start(proxy.Listener{})
	if resp, text := w.do(w.request("GET", "/", nil)); resp.StatusCode != 502 || !strings.Contains(text, "in the middle of a replay") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}
