package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is the time within which expected events must happen.
const limit = 2 * time.Minute

// world is a proxy, with machines that are servers in the test.
type world struct {
	t      *testing.T
	target route.Target
	log    *lines
	config proxy.Config
	proxy  *proxy.Proxy
	addr   string // address of the proxy

	mu        sync.Mutex
	upstreams map[bourse.MachineID]*upstream
	uses      []bourse.MachineID
	use       func(context.Context, bourse.MachineID) error // called by Use; nil: every machine is ready
	failed    []bourse.MachineID                            // machines whose slots were released with a failure
	open      int                                           // number of slots and uses in progress

	later   string        // host name that becomes known once changed is closed
	changed chan struct{} // created by the first call of Changed
	counts  []string
}

// newWorld returns a world with one machine for each handler.
func newWorld(t *testing.T, machines ...http.Handler) *world {
	w := &world{t: t, upstreams: map[bourse.MachineID]*upstream{}, log: &lines{}}
	w.target = route.Target{App: &route.App{ID: "a1", Name: "web", Org: "o"}, Port: workload.Port{First: 80, Last: 80, Handlers: []workload.Handler{workload.HandlerHTTP}}}
	for _, h := range machines {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		s.Start()
		t.Cleanup(s.CloseClientConnections)
		t.Cleanup(s.Close)
		w.machine(s.Listener.Addr().String())
	}
	w.config = proxy.Config{Routes: w, Balance: inOrder{w}, Upstreams: upstreams{w}, Metrics: counts{w}, Region: "gru", Log: slog.New(slog.NewTextHandler(w.log, nil))}
	return w
}

// machine adds a machine with the given address.
func (w *world) machine(addr string) bourse.MachineID {
	id := bourse.MachineID("00000a0000000" + string(rune('1'+len(w.target.Backends))))
	w.target.Backends = append(w.target.Backends, route.Backend{
		Machine: id, Instance: bourse.NewInstanceID(), Worker: "w1", Region: "gru", State: bourse.StateStarted, Reachable: true,
		Service: workload.Service{Protocol: workload.ProtocolTCP, InternalPort: 8080, Autostart: true},
	})
	w.upstreams[id] = &upstream{w: w, addr: addr, done: make(chan struct{})}
	return id
}

// start starts the proxy.
func (w *world) start(l proxy.Listener) *world {
	w.t.Helper()
	if l.Port == 0 {
		l.Port = 80
	}
	w.proxy = proxy.New(w.config)
	s := httptest.NewUnstartedServer(nil)
	s.Config = proxy.NewServer(w.proxy.Handler(l), slog.New(slog.DiscardHandler))
	s.Start()
	w.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		w.proxy.Close()
		w.settled()
	})
	w.addr = s.Listener.Addr().String()
	return w
}

// settled waits until all requests have ended.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("all slots and uses are released", func() bool { return w.open == 0 && w.proxy.Open() == 0 })
}

// eventually waits until fact returns true. what describes the condition.
func (w *world) eventually(what string, fact func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(limit)
	for {
		w.mu.Lock()
		ok := fact()
		w.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("timed out after %s: %s", limit, what)
		}
		<-tick.C
	}
}

// Find implements proxy.Routes.
func (w *world) Find(host string, port int) (*route.Target, error) {
	w.mu.Lock()
	later := w.later
	w.mu.Unlock()
	if host != "web.example" && host != later || port != w.target.Port.First {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no app serves host %s", bourse.Quoted(host))
	}
	return &w.target, nil
}

// Changed implements proxy.Routes.
func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

type inOrder struct{ w *world }

// Acquire implements proxy.Balance. It returns the first machine that was not tried yet, or the first one if all were
// tried.
func (b inOrder) Acquire(ctx context.Context, t *route.Target, want proxy.Criteria) (proxy.Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list := slices.Clone(t.Backends)
	rank := func(x route.Backend) int {
		switch {
		case x.Machine == want.Instance && !slices.Contains(want.Tried, x.Machine):
			return 0
		case slices.Contains(want.Tried, x.Machine):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y route.Backend) int { return rank(x) - rank(y) })
	if want.Only {
		list = slices.DeleteFunc(list, func(x route.Backend) bool { return x.Machine != want.Instance })
	}
	b.w.hold(1)
	return slot{b.w, list[0]}, nil
}

func (w *world) hold(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
}

type slot struct {
	w *world
	b route.Backend
}

func (t slot) Backend() route.Backend { return t.b }

func (t slot) Done(failed error) {
	t.w.hold(-1)
	if failed != nil && !errors.Is(failed, context.Canceled) {
		t.w.mu.Lock()
		defer t.w.mu.Unlock()
		t.w.failed = append(t.w.failed, t.b.Machine)
	}
}

type upstreams struct{ w *world }

// Use implements proxy.Upstreams.
func (s upstreams) Use(ctx context.Context, _ bourse.WorkerID, id bourse.MachineID, _ int, _ bool) (proxy.Upstream, error) {
	s.w.mu.Lock()
	s.w.uses = append(s.w.uses, id)
	use := s.w.use
	s.w.mu.Unlock()
	if use != nil {
		if err := use(ctx, id); err != nil {
			return nil, err
		}
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.upstreams[id], nil
}

type upstream struct {
	w    *world
	addr string
	done chan struct{}
}

func (y *upstream) Begin() func() { y.w.hold(1); return func() { y.w.hold(-1) } }

func (y *upstream) Done() <-chan struct{} { return y.done }

func (y *upstream) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", y.addr)
}

type counts struct{ w *world }

func (c counts) add(words ...string) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.counts = append(c.w.counts, strings.Join(words, " "))
}

func (c counts) RequestStarted(app string)                       { c.add("began", app) }
func (c counts) RequestEnded(app string, _ int, _ time.Duration) { c.add("ended", app) }
func (c counts) Repeated(app, why string)                        { c.add("repeated", app, why) }
func (c counts) MachineWoken(app string, ok bool, _ time.Duration) {
	c.add("woke", app, map[bool]string{true: "ok", false: "failed"}[ok])
}

// lines is an in-memory log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// request returns a request for the app.
func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+w.addr+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Host = "web.example"
	return r
}

// client returns a client that does not share connections with other clients.
func client(t *testing.T, h2 bool) *http.Transport {
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// reply is a reply whose body has been read.
type reply struct {
	StatusCode int
	Header     http.Header
}

// do sends a request and reads the whole reply.
func (w *world) do(r *http.Request) (reply, string) {
	w.t.Helper()
	resp, err := client(w.t, false).RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header}, string(text)
}

// dead returns an address on which nothing is listening.
func dead(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// rawMachine starts a server that calls serve for each connection and then closes the connection.
// It returns the server's address.
func rawMachine(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func handle(f func(w http.ResponseWriter, r *http.Request)) http.Handler { return http.HandlerFunc(f) }
