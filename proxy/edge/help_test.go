package edge

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit is the time within which expected events must happen.
const waitLimit = time.Minute

// routes implements Routes for tests.
type routes struct {
	mu    sync.Mutex
	hosts map[string]*route.Target
	apps  map[bourse.AppName][]*route.Target
}

func (r *routes) Find(host string, _ int) (*route.Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.hosts[host]; t != nil {
		return t, nil
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "no app for %s", host)
}

func (r *routes) App(name bourse.AppName) []*route.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.apps[name]
}

// target returns a target of app db. It has one machine for each address, and the machine's ID is
// the address.
func target(port workload.Port, machines ...string) *route.Target {
	t := &route.Target{App: &route.App{Name: "db"}, Port: port}
	for _, m := range machines {
		t.Backends = append(t.Backends, route.Backend{Machine: bourse.MachineID(m), Worker: "w1", State: bourse.StateStarted})
	}
	return t
}

func streamOf(port workload.Port, machines ...string) *routes {
	return &routes{apps: map[bourse.AppName][]*route.Target{"db": {target(port, machines...)}}}
}

// inOrder is a Balance that chooses the first machine that was not tried yet.
type inOrder struct {
	mu   sync.Mutex
	open map[bourse.MachineID]int
	bad  map[bourse.MachineID]error
}

func (b *inOrder) Acquire(_ context.Context, t *route.Target, w proxy.Criteria) (proxy.Slot, error) {
	for i := range t.Backends {
		tried := false
		for _, id := range w.Tried {
			tried = tried || id == t.Backends[i].Machine
		}
		if !tried {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.open == nil {
				b.open, b.bad = map[bourse.MachineID]int{}, map[bourse.MachineID]error{}
			}
			b.open[t.Backends[i].Machine]++
			return &slot{b, t.Backends[i]}, nil
		}
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "no machine is left")
}

// inUse returns the number of slots that are in use.
func (b *inOrder) inUse() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.open {
		n += k
	}
	return n
}

type slot struct {
	of *inOrder
	at route.Backend
}

func (t *slot) Backend() route.Backend { return t.at }

func (t *slot) Done(failed error) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.open[t.at.Machine]--
	if failed != nil {
		t.of.bad[t.at.Machine] = failed
	}
}

// byAddress connects to machines, using their IDs as addresses.
type byAddress struct{}

func (byAddress) Use(_ context.Context, _ bourse.WorkerID, m bourse.MachineID, _ int, _ bool) (proxy.Upstream, error) {
	if m == "none" {
		return nil, bourse.Errorf(bourse.CodeInsufficient, "its host is full")
	}
	return address(m), nil
}

type address string

func (address) Begin() func()         { return func() {} }
func (address) Done() <-chan struct{} { return nil }
func (a address) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", string(a))
}

func listenHere(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// web returns an HTTP listener with a server like the proxy's.
func web(t *testing.T, h http.Handler, secure bool) Web {
	t.Helper()
	return Web{Listener: listenHere(t), Server: proxy.NewServer(h, slog.New(slog.DiscardHandler)), Port: 80, TLS: secure}
}

// start runs an edge until the test ends or stop is called. stop waits until Run has returned.
func start(t *testing.T, c Config) (stop func()) {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if c.Routes == nil {
		c.Routes = &routes{}
	}
	if c.Certificates == nil {
		c.Certificates = &Certificates{}
	}
	if c.Balance == nil {
		c.Balance = &inOrder{}
	}
	c.Upstreams = byAddress{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- New(c).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the edge ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, l net.Listener) *net.TCPConn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	return c.(*net.TCPConn)
}

// machine starts a server that reads all data from a client, and replies with the same data and a "!". It returns the
// server's address.
func machine(t *testing.T) string {
	t.Helper()
	l := listenHere(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				got, _ := io.ReadAll(c)
				_, _ = c.Write(append(got, '!'))
			}()
		}
	}()
	return l.Addr().String()
}

// testCA issues certificates that clients can verify.
type testCA struct {
	*admission.CA
	pool *x509.CertPool
}

func newCA(t *testing.T) *testCA {
	t.Helper()
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Pair().Cert)
	return &testCA{ca, pool}
}

// write writes a certificate for the given hosts, and its key. The files are name.pem and name.key or, if name ends
// with a slash, the files that certbot would create in that directory.
func (ca *testCA) write(t *testing.T, dir, name string, hosts ...string) {
	t.Helper()
	pair, err := ca.IssueOther("test", hosts, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	if name[len(name)-1] == '/' {
		cert, key = filepath.Join(dir, name, "fullchain.pem"), filepath.Join(dir, name, "privkey.pem")
	}
	for path, text := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
